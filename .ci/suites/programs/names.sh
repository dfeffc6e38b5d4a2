# Asks a name server for one name, often at once: `names.sh PORT SERVER ARGUMENTS...`, which starts and ends the server.
port=$1
shift
"$@" > log 2>&1 &
for turn in $(seq 100); do
  dig +short +tries=1 +time=1 -p "$port" @127.0.0.1 a.test A | grep -q 192 && break
  sleep 0.1
done
for each in $(seq 60); do dig +short +tries=2 +time=5 -p "$port" @127.0.0.1 a.test A & done | sort | uniq -c
for each in 1 2 3; do dig +tcp +short +tries=2 +time=5 -p "$port" @127.0.0.1 a.test A; done
kill %1
wait %1
echo "ended with $?"
