package openshell

import (
	"maps"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/product"
)

// A dialect is how one generation says things. It only translates: what is
// asked, how often and how long is the same for both.
type dialect interface {
	generation() Generation
	info() call[Info]
	create(r Request, workspace, attempt string) call[Record]
	get(name, workspace string) call[Record]
	list(selector, workspace string, p page) call[listing]
	remove(ref Ref, workspace string) call[removal]
	watch(ref Ref, workspace string) (in proto.Message, event func() watchEvent)
	exec(ref Ref, workspace string, c Command) execution
}

// A call is one request with room for its answer. Read looks at the answer
// once it is there.
type call[T any] struct {
	method  string
	in, out proto.Message
	read    func() T
}

// A page is where a list goes on. The generations count differently.
type page struct {
	offset int
	token  string
}

// mostPage is how many records one page may have.
const mostPage = 100

type listing struct {
	records []Record
	token   string
	counted bool // the next page is asked for by offset
}

// removal is what a gateway says of a deletion.
type removal uint8

const (
	removalUnsaid removal = iota // nothing that we understand
	removalDone                  // gone, or on its way
	removalAbsent
)

// A watchEvent is one message of a watch: a record, or a step that a driver
// reports, or nothing that we know.
type watchEvent struct {
	out  proto.Message // to be received into
	read func() watched
}

type watched struct {
	record *Record
	step   *Progress
}

// An execution is the messages of one command.
type execution struct {
	start  proto.Message // of the stream that goes both ways
	once   proto.Message // of the other one
	stdin  func([]byte) proto.Message
	resize func(Size) proto.Message
	event  func() (out proto.Message, read func() execEvent)
}

// execEvent is one message from a command: output, or its end.
type execEvent struct {
	stdout, stderr []byte
	exited         bool
	code           int
}

// steps of a driver that are about the image.
var pullReasons = []string{"Pulling", "PullingLayer", "Pulled", "ImagePresent"}

func stepOf(reason, message string) *Progress {
	return &Progress{Phase: Provisioning, Reason: word(reason), Message: plain(message), Pull: slices.Contains(pullReasons, reason)}
}

// driverConfig is what the Docker driver reads of a request: the mounts.
func driverConfig(r Request) *structpb.Struct {
	if len(r.Mounts) == 0 {
		return nil
	}
	mounts := make([]*structpb.Value, len(r.Mounts))
	for i, m := range r.Mounts {
		if m.Memory > 0 {
			mounts[i] = structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
				"type":       structpb.NewStringValue("tmpfs"),
				"target":     structpb.NewStringValue(m.Target),
				"size_bytes": structpb.NewNumberValue(float64(m.Memory)),
				"mode":       structpb.NewNumberValue(float64(m.Mode)),
			}})
			continue
		}
		mounts[i] = structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
			"type":   structpb.NewStringValue("bind"),
			"source": structpb.NewStringValue(m.Source),
			"target": structpb.NewStringValue(m.Target),
			// Said always: what is left out is read-only.
			"read_only": structpb.NewBoolValue(m.ReadOnly),
		}})
	}
	return nested(structpb.NewListValue(&structpb.ListValue{Values: mounts}), product.Driver, "mounts")
}

// resources are the limits as the Docker driver reads them: texts.
func resources(r Request) *structpb.Struct {
	limits := map[string]*structpb.Value{}
	if r.CPUs > 0 {
		limits["cpu"] = structpb.NewStringValue(strconv.FormatInt(int64(max(1, r.CPUs*1000)), 10) + "m")
	}
	if r.Memory > 0 {
		limits["memory"] = structpb.NewStringValue(strconv.FormatInt(r.Memory, 10))
	}
	if len(limits) == 0 {
		return nil
	}
	return nested(structpb.NewStructValue(&structpb.Struct{Fields: limits}), "limits")
}

func nested(v *structpb.Value, path ...string) *structpb.Struct {
	for _, key := range slices.Backward(path[1:]) {
		v = structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{key: v}})
	}
	return &structpb.Struct{Fields: map[string]*structpb.Value{path[0]: v}}
}

// labelsOf are the labels of a request with the one that tells this attempt
// from any other.
func labelsOf(r Request, attempt string) map[string]string {
	labels := maps.Clone(r.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[LabelAttempt] = attempt
	return labels
}

// ruleName names the one rule for each way out.
func ruleName(i int) string { return "mojoup_" + strconv.Itoa(i) }

const (
	policyVersion   = 1
	hardRequirement = "hard_requirement"
	readyCondition  = "Ready"
)

// Exits of a process as a gateway may give them: nothing else fits into 8 bits.
func exitCode(code int32) int { return int(code) & 0xff }
