#!/bin/sh
# The `setup` service of docker-compose.yml, once per federation: keys and certificates of both
# parties, and the example's data. What exists is kept.
set -eu

if [ ! -f /setup/clinic/keys/node.crt ] || [ ! -f /setup/lab/keys/node.crt ]; then
  vfl-node init clinic --role active /tmp/clinic
  vfl-node init lab --role passive /tmp/lab
  vfl-node certify /tmp/clinic /tmp/lab --authority /tmp/authority # its key ends with this container
  for party in clinic lab; do
    cp -p "/tmp/$party/node.key" "/tmp/$party/ca.crt" "/tmp/$party/node.crt" "/setup/$party/keys/"
  done
fi

if [ ! -f /setup/clinic/data/clinic.csv ] || [ ! -f /setup/lab/data/lab.csv ]; then
  python3 /example/make_data.py /tmp/data
  cp /tmp/data/clinic.csv /setup/clinic/data/
  cp /tmp/data/lab.csv /setup/lab/data/
fi
