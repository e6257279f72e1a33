/* Where something failed, kept until it can be told. */
#include "helper.h"

int fail(struct failure *failure, uint32_t stage, long result, const char *operand)
{
	failure->stage = stage;
	failure->error = (int32_t)-result;
	failure->operand = operand;
	return -1;
}
