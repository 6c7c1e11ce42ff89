#!/bin/sh
# Installs what make rivals measures beside Go modules: programs of Debian, if this
# is Debian and we may, and Cachey below the folder that is named, if there is a
# cargo. What stays missing is said, and left out by what measures. Services of
# these packages are not started, neither now nor with the machine.
set -u
dir=$1
packages=
want() { # a program or a file, and Debian's package of it
	command -v "$1" >/dev/null || test -e "$1" || packages="$packages $2"
}
want wrk wrk
want nginx nginx
want varnishd varnish
want traffic_server trafficserver
want /usr/lib/trafficserver/modules/slice.so trafficserver-experimental-plugins

if [ -n "$packages" ]; then
	echo "missing:$packages; installing them" >&2
	policy=/usr/sbin/policy-rc.d # says whether a package may start its service
	if [ ! -e $policy ] && printf '#!/bin/sh\nexit 101\n' >$policy && chmod +x $policy; then
		trap 'rm -f $policy' EXIT
		trap 'exit 1' INT TERM HUP # it must not outlive this
	fi
	# Without a policy of that kind nothing is installed: a daemon would disturb more than a row is worth.
	if [ -x $policy ] && apt-get update -qq >&2 &&
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages >&2; then
		command -v systemctl >/dev/null && for service in nginx varnish varnishncsa trafficserver; do
			case "$packages" in *"$service"*) systemctl disable -q $service 2>/dev/null ;; esac
		done
	else
		echo "they can't be installed: is this Debian, and are you root?" >&2
	fi
fi

version=0.13.2
if [ "$("$dir/bin/server" --version 2>/dev/null)" != "cachey $version" ]; then
	if command -v cargo >/dev/null; then
		echo "building Cachey $version into $dir: a quarter of an hour, once" >&2
		cargo install cachey --version $version --locked --quiet --root "$dir" >&2 || echo "Cachey can't be built" >&2
	else
		echo "there is no cargo to build Cachey $version with" >&2
	fi
fi
exit 0
