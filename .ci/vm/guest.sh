#!/usr/bin/env bash
# Runs inside the virtual machine as root, before it is switched off: one stage,
# named on the kernel's command line. A stage that passes says so last.
set -uo pipefail
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
stage=$(sed -n 's/.*stage=\([a-z]*\).*/\1/p' /proc/cmdline)
node=/share/bin/mojoup-node
repo=/home/alice/work
failed=0
echo "== stage $stage: $(uname -r)"

# expect TEXT COMMAND…: the command's output has the text.
expect() {
	local text=$1 out
	shift
	out=$("$@" 2>&1)
	if grep -qF -- "$text" <<<"$out"; then
		echo "ok: $text"
	else
		printf 'MISSING: %s\nfrom: %s\n%s\n' "$text" "$*" "$out"
		failed=1
	fi
}

# alice runs a command as she does in a login, where her service manager is
# beside her and not above.
alice() {
	timeout 180 setpriv --reuid 1000 --regid 1000 --init-groups env -i HOME=/home/alice USER=alice LOGNAME=alice \
		PATH="$PATH" XDG_RUNTIME_DIR=/run/user/1000 LANG=C.UTF-8 bash -c "cd $repo 2>/dev/null || cd; $1"
}

make_repository() {
	[ -d $repo/.git ] || alice "git init -q $repo && cd $repo && git config user.name a && git config user.email a@example.org && git commit -q --allow-empty -m first"
}

# tests PATTERN PACKAGE [OPTION…] runs a package's compiled tests alone in a unit
# that may be divided, showing only what they say of themselves.
tests() {
	local out=/tmp/out code
	systemd-run "${@:3}" --wait --pipe --quiet -p Delegate=yes -p "WorkingDirectory=/share/tree/$2" -E MOJOUP_TEST_LONG=1 \
		"/share/bin/$(basename "$2").test" -test.v -test.timeout 25m -test.run "$1" >$out 2>&1
	code=$?
	[ $code = 0 ] || { cat $out; return $code; }
	grep -E '^(---|PASS)' $out
	# Without groups there is nothing to see here.
	! grep -q 'wanted root or delegation' $out
}

case $stage in
old)
	make_repository
	expect "This machine cannot sandbox agents" alice "$node doctor"
	expect "Landlock" alice "$node doctor"
	;;
groups)
	make_repository
	limits='B69|Limit|Scratch|Bombs|Sweep|Dead|Processor'
	echo "-- root, in a unit"
	tests "$limits" pkg/sandbox/native || failed=1
	tests . pkg/sandbox/native/cgroup || failed=1
	echo "-- an ordinary user, in a unit"
	tests "$limits" pkg/sandbox/native --user -M alice@.host || failed=1
	echo "-- an ordinary user, in a login"
	cat >/tmp/policy.json <<-'P'
		{"version": 1, "limits": {"memory": "64MiB", "processes": 64, "cpus": 1}}
	P
	chmod 644 /tmp/policy.json
	expect "which a node asks your service manager for" alice "$node doctor"
	expect "killed for memory: limit 64 MiB" alice "$node run --policy /tmp/policy.json -- sh -c 'head -c 200000000 /dev/zero | tail -c 199999999 | wc -c'"
	expect "mojoup-node-" alice "cat /proc/\$(pgrep -o -x mojoup-node)/cgroup"
	alice "$node run --detach --policy /tmp/policy.json -- sleep 100000" >/tmp/id
	for limit in memory process processor; do
		expect "enforced" alice "$node session show $(tail -1 /tmp/id) | grep '$limit.* limit'"
	done
	alice "$node serve --stop"
	;;
people)
	# A system node as a service: of a login's group an ordinary user may divide
	# nothing, and limits hold all the same.
	make_repository
	id bob >/dev/null 2>&1 || useradd -m -u 1001 -s /bin/bash bob
	chmod 700 /home/alice /home/bob
	mkdir -p /run/systemd/system
	cat >/run/systemd/system/mojoup-node.socket <<-'U'
		[Socket]
		ListenStream=/run/mojoup/node.sock
		SocketMode=0666
	U
	cat >/run/systemd/system/mojoup-node.service <<-U
		[Service]
		Type=notify
		ExecStart=$node serve --system
		Delegate=yes
		KillMode=mixed
		OOMScoreAdjust=-500
	U
	systemctl daemon-reload
	systemctl start mojoup-node.socket
	cat >/tmp/policy.json <<-'P'
		{"version": 1, "limits": {"memory": "64MiB", "processes": 64, "cpus": 1}}
	P
	chmod 644 /tmp/policy.json
	expect "does not serve user alice" alice "$node status"
	expect "set node.people.allow" $node config set node.people.allow alice
	expect "running for several people" alice "$node status"
	expect "killed for memory" alice "$node run --policy /tmp/policy.json -- sh -c 'tail /dev/zero'"
	shown="\$($node session list --past --json | sed -n 's/^ *\"id\": \"\(.*\)\",/\1/p' | head -1)"
	for limit in memory process processor; do
		expect "by control group v2" alice "$node session show $shown | grep -E '^ *enforced +$limit limit'"
	done
	expect "ask 0" alice "$node run -- sh -c 'echo ask \$(cat /proc/self/oom_score_adj)'"
	expect "mojoup.user-1000" sh -c 'cat /proc/$(pgrep -u 1000 -f "mojoup-node deputy")/cgroup'
	# Killed as nothing can prevent, and started again by the next who asks.
	alice "$node run --detach -- sleep 100000"
	expect ".mojoup" alice "ls -a $repo"
	systemctl kill --signal=KILL --kill-whom=all mojoup-node.service
	expect "lost" alice "until $node session list --past | grep lost; do sleep 0.2; done"
	if alice "ls -A $repo" | grep -v '^.git$'; then
		echo "left in the repository"
		failed=1
	fi
	# Stopped, it ends the sessions first.
	alice "$node run --detach -- sleep 100000"
	systemctl stop mojoup-node.socket mojoup-node.service
	if alice "ls -A $repo" | grep -v '^.git$'; then
		echo "left in the repository"
		failed=1
	fi
	[ ! -e /sys/fs/cgroup/system.slice/mojoup-node.service ] || { echo "its group is left"; failed=1; }
	[ $failed = 0 ] || journalctl --no-pager -u mojoup-node.service | tail -40
	;;
reboot)
	make_repository
	alice "$node run --detach -- sleep 100000"
	expect "running" alice "$node session list"
	expect ".mojoup" alice "ls -a $repo"
	sync
	echo "== stage $stage: passed"
	echo b >/proc/sysrq-trigger
	sleep 60
	;;
after)
	# The machine was cut off in the middle of the session of the stage before.
	expect "lost" alice "$node cleanup; $node session list --past"
	if alice "ls -A $repo" | grep -v '^.git$'; then
		echo "left in the repository"
		failed=1
	fi
	expect "nothing to commit" alice "git status"
	expect "still works" alice "$node run -- echo still works"
	alice "$node serve --stop"
	;;
sleep)
	make_repository
	alice "$node run --detach -- sh -c 'while :; do date +%s >> ticks; sleep 1; done'"
	before=$(alice "wc -l < ticks" || echo 0)
	echo mem >/sys/power/state # until somebody wakes it
	sleep 5
	after=$(alice "wc -l < ticks")
	[ "$after" -gt "$before" ] || { echo "no tick after the sleep: $before, $after"; failed=1; }
	expect "running" alice "$node session list"
	expect "still works" alice "$node run -- echo still works"
	alice "$node serve --stop"
	;;
clock)
	# The clock that people see is set by years, forwards and backwards, beneath
	# a session. Its time limit is counted by one that nobody can set.
	make_repository
	limit=150
	alice "mkdir .mojoup && cat >.mojoup/policy.json" <<-P
		{"version": 1, "limits": {"wall": "${limit}s"},
		 "network": {"rules": [{"hosts": ["example.org"], "ports": [443]}]}}
	P
	expect "approved" alice "$node policy approve --yes"
	up() { cut -d. -f1 /proc/uptime; }
	true_time=$(date +%s) began=$(up)
	alice "$node run --detach -- sh -c 'while :; do date +%s >>ticks; sleep 1; done'" >/tmp/id
	for years in 10 -20 11; do
		date -s "@$((true_time + years * 31557600))" >/dev/null
		ticks=$(alice "wc -l <ticks")
		expect "running" alice "$node session list"
		# What was approved stays so, and a session begins and ends as ever.
		expect "still works" alice "$node run -q -- echo still works"
		expect "ticks on" alice "for i in \$(seq 100); do [ \$(wc -l <ticks) -le $ticks ] || { echo ticks on; exit; }; sleep 0.2; done"
	done
	date -s "@$true_time" >/dev/null
	lasted=$(($(up) - began))
	[ $lasted -lt $limit ] || { echo "this machine is too slow: $lasted seconds passed before the limit could be waited for"; failed=1; }
	expect "it reached its time limit of 2m30s" alice "for i in \$(seq 170); do $node session show $(tail -1 /tmp/id) | grep 'time limit of' && break; sleep 1; done"
	lasted=$(($(up) - began))
	echo "ended after $lasted seconds"
	[ $lasted -ge $limit ] || { echo "that is too early"; failed=1; }
	alice "$node serve --stop"
	;;
*) failed=1 ;;
esac
[ $failed = 0 ] && echo "== stage $stage: passed"
sync
