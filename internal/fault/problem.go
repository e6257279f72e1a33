package fault

import "github.com/mojoup/mojoup-node/pkg/console/api"

// Problem is what a client of the API is told of f: the sentence and the next
// step that were written for people. An error that nobody wrote a sentence for
// may hold anything and stays in the log of the node.
func (f *Fault) Problem() *api.Problem {
	p := &api.Problem{Code: f.Code, Sentence: f.Sentence, Hint: f.Hint, Exit: f.Exit}
	if f.Hint != "" {
		return p
	}
	switch f.Code {
	case CodeInternal:
		p.Sentence, p.Hint = "the node met an error of its own", "the reason is in the log of the node: `mojoup-node status` says where that is"
	case CodeCancelled:
		p.Sentence = "it was called off before it was done"
	case CodeTimeout:
		p.Sentence = "it took too long and was given up"
	}
	return p
}

// FromProblem is the fault that a node told a client. What a node leaves out
// is taken for the worst: a problem never exits with 0.
func FromProblem(p *api.Problem) *Fault {
	if p == nil {
		return nil
	}
	f := &Fault{Code: p.Code, Sentence: oneLine(p.Sentence), Hint: oneLine(p.Hint), Exit: p.Exit, Err: p}
	if f.Code == "" {
		f.Code = CodeInternal
	}
	if f.Sentence == "" {
		f.Sentence = "the node refused without a reason"
	}
	if f.Exit <= 0 || f.Exit > 255 {
		f.Exit = ExitUnknown
	}
	return f
}
