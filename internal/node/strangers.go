package node

import (
	"fmt"
	"sync"

	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// watchDoor notes who is turned away at a session's way out, at once, until the
// returned function is called, which has the lines for the session's record.
func (l *life) watchDoor(box sandbox.Sandbox) (end func() []string) {
	keeper, ok := box.(sandbox.Doorkeeper)
	if !ok {
		return func() []string { return nil }
	}
	stop := make(chan struct{})
	var noting sync.WaitGroup
	noted := 0
	note := func() (list []sandbox.Stranger, news <-chan struct{}) {
		list, news = keeper.Strangers()
		for _, s := range list[noted:] {
			l.diary.note(api.EventNotice, fmt.Sprintf("%s was turned away at the session's way out: %s", s.Who, s.Reason))
		}
		noted = len(list)
		return list, news
	}
	noting.Go(func() {
		for {
			_, news := note()
			select {
			case <-news:
			case <-stop:
				return
			}
		}
	})
	return func() (lines []string) {
		close(stop)
		noting.Wait()
		list, _ := note()
		for _, s := range list {
			lines = append(lines, "warning: "+strangerLine(s))
		}
		return lines
	}
}

func strangerLine(s sandbox.Stranger) string {
	often := ""
	if s.Count > 1 {
		often = fmt.Sprintf(" %d times", s.Count)
	}
	return fmt.Sprintf("%s tried%s to use the session's way out and was turned away: %s", s.Who, often, s.Reason)
}
