package cgroup

import (
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Offered are the controllers that a person's own service manager has and
// passes on to a group that it is asked for, on version 2: what a node can
// have that was started in an ordinary login. It is nothing where the manager
// ends with the last login, since what is in its groups ends with it; systemd
// keeps it for users that have a file in /var/lib/systemd/linger.
//
// files is the machine from its root, user the name and uid the number of the
// person.
func Offered(files fs.FS, user string, uid int) []Controller {
	l := look{files: files}
	if files == nil || uid == 0 || user == "" || strings.ContainsAny(user, "/\x00") {
		return nil
	}
	if _, err := fs.Stat(files, path.Join("var/lib/systemd/linger", user)); err != nil {
		return nil
	}
	number := strconv.Itoa(uid)
	if _, err := fs.Stat(files, path.Join("run/user", number, "systemd/private")); err != nil {
		return nil
	}
	var out []Controller
	for _, m := range parseMounts(l.text("/proc/self/mountinfo")) {
		if m.kind != "cgroup2" {
			continue
		}
		manager := m.below("/user.slice/user-" + number + ".slice/user@" + number + ".service")
		has := strings.Fields(l.text(path.Join(manager, "cgroup.controllers")))
		for _, c := range Controllers() {
			if slices.Contains(has, string(c)) && !slices.Contains(out, c) {
				out = append(out, c)
			}
		}
	}
	return out
}
