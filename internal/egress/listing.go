package egress

import (
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/mojoup/mojoup-node/internal/egress/gitpush"
)

// maxListings is of how many repositories a session knows what the servers
// have; those asked last.
const maxListings = 32

// pushes is what a session's pushes need of one another.
type pushes struct {
	room chan struct{} // one for each that is being judged
	// mu guards what follows.
	mu    sync.Mutex
	known map[string]has // by repository
	order []string       // of repositories, the newest last
}

// has is what a server has, or why that is not known.
type has struct {
	refs map[string]string // ids by reference
	why  string
}

var notAsked = has{why: "it is not known what the server has: git asks for that before it pushes"}

func newPushes() *pushes {
	return &pushes{room: make(chan struct{}, maxPushing), known: map[string]has{}}
}

// learn remembers what a server has.
func (p *pushes) learn(repository string, what has) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, name := range p.order {
		if name == repository {
			p.order = append(p.order[:at], p.order[at+1:]...)
			break
		}
	}
	if len(p.order) == maxListings {
		delete(p.known, p.order[0])
		p.order = p.order[1:]
	}
	p.known[repository], p.order = what, append(p.order, repository)
}

func (p *pushes) of(repository string) has {
	p.mu.Lock()
	defer p.mu.Unlock()
	if what, ok := p.known[repository]; ok {
		return what
	}
	return notAsked
}

// repositoryOf names a repository by where its requests go.
func repositoryOf(x *exchange, path string) string {
	return fmt.Sprintf("%t %s%s", x.link.tls, x.to, path)
}

// A listing is an answer in which a server says what it has.
type listing struct {
	gitpush.Advertisement
	to         *pushes
	repository string
}

// ask wants an answer that can be read. A nil listing wants nothing.
func (l *listing) ask(h http.Header) {
	if l != nil {
		h.Set("Accept-Encoding", "identity")
		h.Del("Range")
	}
}

// follows reports whether an answer is one that is read as it passes.
func (l *listing) follows(status int, contentType string) bool {
	if l == nil {
		return false
	}
	l.to.learn(l.repository, notAsked)
	return status == http.StatusOK && contentType == gitpush.TypeAdvertisement
}

// follow reads an answer over HTTP/2.
func (l *listing) follow(res *http.Response) error {
	if !l.follows(res.StatusCode, res.Header.Get("Content-Type")) {
		return nil
	}
	if err := decode(res); err != nil {
		return err
	}
	res.Body = &followed{ReadCloser: res.Body, listing: l}
	return nil
}

type followed struct {
	io.ReadCloser
	listing *listing
}

// Read remembers what the server has before whoever asked knows that its
// answer has ended.
func (f *followed) Read(p []byte) (int, error) {
	n, err := f.ReadCloser.Read(p)
	_, _ = f.listing.Write(p[:n])
	if f.listing.to == nil {
		return n, err
	}
	switch refs, failed := f.listing.References(); {
	case failed == nil:
		f.listing.to.learn(f.listing.repository, has{refs: refs})
		f.listing.to = nil
	case err != nil:
		f.listing.to.learn(f.listing.repository, has{why: "what the server has could not be read: " + failed.Error()})
		f.listing.to = nil
	}
	return n, err
}
