// Package unit promises a node control groups that it may divide, where its
// person's own service manager gives some.
//
// A node that a person starts in an ordinary login stands in a group of that
// login, which it may not divide: its sessions' limits would only be watched.
// systemd's manager of that person passes controllers on to whoever asks
// (org.freedesktop.systemd1(5), StartTransientUnit with Delegate).
package unit
