#!/bin/sh
# The `setup` service of docker-compose.yml, once per federation: keys and certificates of all
# parties, and the examples' data. Existing files are kept. But certificates must be of one
# authority: if one party has none, all are created again.
set -eu

complete=yes
for party in clinic lab insurer agency schools coordinator; do
  keys="/setup/$party/keys"
  [ -f "$keys/node.crt" ] && cmp -s "$keys/ca.crt" /setup/clinic/keys/ca.crt || complete=no
done
if [ "$complete" = no ]; then
  vfl-node init clinic --role active --shared /tmp/clinic
  vfl-node init lab --role passive --shared /tmp/lab
  vfl-node init insurer --role passive --shared /tmp/insurer
  vfl-node init agency --role active --shared /tmp/agency
  vfl-node init schools --role passive --shared /tmp/schools
  vfl-node init coordinator --role coordinator --shared /tmp/coordinator
  # the key of the authority ends with this container
  vfl-node certify /tmp/clinic /tmp/lab /tmp/insurer /tmp/agency /tmp/schools /tmp/coordinator --authority /tmp/authority
  for party in clinic lab insurer agency schools coordinator; do
    cp -p "/tmp/$party/node.key" "/tmp/$party/node.crt" "/tmp/$party/ca.crt" "/setup/$party/keys/"
  done
fi

complete=yes
for party in clinic lab insurer; do
  [ -f "/setup/$party/data/$party.csv" ] || complete=no
done
if [ "$complete" = no ]; then
  python3 /example/make_data.py /tmp/data
  for party in clinic lab insurer; do
    cp "/tmp/data/$party.csv" "/setup/$party/data/"
  done
fi

if [ ! -f /setup/agency/data/sales.csv ] || [ ! -f /setup/schools/data/schools.csv ]; then
  python3 /linkage/make_data.py /tmp/linked
  cp /tmp/linked/sales.csv /setup/agency/data/
  cp /tmp/linked/schools.csv /setup/schools/data/
fi
