package cgroup

import (
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A Manager is a person's own service manager, as systemd starts one.
type Manager struct {
	Runs bool
	// Lingers says that it goes on after the last logout: systemd keeps it for
	// users that have a file in /var/lib/systemd/linger.
	Lingers bool
}

// ManagerOf looks for the service manager of a person. files is the machine
// from its root, runtime the person's runtime directory (/run/user/UID where it
// is empty), user their name.
func ManagerOf(files fs.FS, runtime, user string, uid int) Manager {
	if files == nil {
		return Manager{}
	}
	if runtime == "" {
		runtime = path.Join("/run/user", strconv.Itoa(uid))
	}
	there := func(at string) bool {
		_, err := fs.Stat(files, strings.TrimPrefix(path.Clean(at), "/"))
		return err == nil
	}
	named := user != "" && !strings.ContainsAny(user, "/\x00")
	return Manager{
		Runs:    there(path.Join(runtime, "systemd/private")),
		Lingers: named && there(path.Join("/var/lib/systemd/linger", user)),
	}
}

// Offered are the controllers that a person's own service manager has and
// passes on to a group that it is asked for, on version 2: what a node can
// have that was started in an ordinary login. It is nothing where the manager
// ends with the last login, since what is in its groups ends with it.
//
// files is the machine from its root, user the name and uid the number of the
// person.
func Offered(files fs.FS, user string, uid int) []Controller {
	l := look{files: files}
	if m := ManagerOf(files, "", user, uid); uid == 0 || !m.Runs || !m.Lingers {
		return nil
	}
	number := strconv.Itoa(uid)
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
