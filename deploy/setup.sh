#!/bin/sh
# The `setup` service of docker-compose.yml, once per federation: keys and certificates of all
# parties, and the examples' data. Existing files are kept. But certificates must be of one
# authority: if one party has none, all are created again.
set -eu

keys=/setup/clinic/keys
if [ ! -f /setup/lab/keys/node.crt ] || [ ! -f /setup/coordinator/keys/node.crt ] || [ ! -f "$keys/node.crt" ] ||
  ! cmp -s "$keys/ca.crt" /setup/lab/keys/ca.crt || ! cmp -s "$keys/ca.crt" /setup/coordinator/keys/ca.crt; then
  vfl-node init clinic --role active /tmp/clinic
  vfl-node init lab --role passive /tmp/lab
  vfl-node init coordinator --role coordinator /tmp/coordinator
  vfl-node certify /tmp/clinic /tmp/lab /tmp/coordinator --authority /tmp/authority # its key ends with this container
  for party in clinic lab coordinator; do
    cp -p "/tmp/$party/node.key" "/tmp/$party/node.crt" "/tmp/$party/ca.crt" "/setup/$party/keys/"
  done
fi

if [ ! -f /setup/clinic/data/clinic.csv ] || [ ! -f /setup/lab/data/lab.csv ]; then
  python3 /example/make_data.py /tmp/data
  cp /tmp/data/clinic.csv /setup/clinic/data/
  cp /tmp/data/lab.csv /setup/lab/data/
fi
