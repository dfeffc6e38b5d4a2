# OpenLDAP's server, with 8 threads: entries are added, searched and changed at once.
mkdir data
cat > slapd.conf <<'CONF'
include /etc/ldap/schema/core.schema
modulepath /usr/lib/ldap
moduleload back_mdb
threads 8
database mdb
maxsize 100000000
suffix "dc=x"
rootdn "cn=root,dc=x"
rootpw secret
directory data
CONF
server=ldap://127.0.0.1:25389
slapd -d 0 -h "$server" -f slapd.conf &
for turn in $(seq 100); do ldapsearch -x -LLL -H "$server" -b '' -s base > out 2>&1 && break; sleep 0.1; done
for each in $(seq 0 299); do
  [ "$each" = 0 ] && printf 'dn: dc=x\nobjectClass: dcObject\nobjectClass: organization\no: x\ndc: x\n\n'
  printf 'dn: cn=p%s,dc=x\nobjectClass: person\ncn: p%s\nsn: s%s\n\n' "$each" "$each" $((each % 7))
done > entries
ldapadd -x -H "$server" -D cn=root,dc=x -w secret -f entries > out 2>&1 || cat out
for each in 1 2 3 4 5 6; do ldapsearch -x -LLL -H "$server" -b dc=x "(sn=s$each)" cn | grep -c ^cn: & done | sort | uniq -c
for each in 1 2 3 4; do
  for turn in 1 2 3 4 5; do
    printf 'dn: cn=p%s,dc=x\nchangetype: modify\nreplace: sn\nsn: n%s%s\n' "$each" "$each" "$turn" |
      ldapmodify -x -H "$server" -D cn=root,dc=x -w secret > out.$each 2>&1 || cat out.$each
  done &
  changes+=($!)
done
wait "${changes[@]}"
ldapsearch -x -LLL -H "$server" -b dc=x '(sn=n*5)' cn | grep ^cn: | sort
kill %1
wait %1
echo "ended with $?"
