# QEMU's images by its coroutines, native and io_uring's calls, and fio's engines, whose data is checked.
qemu-img create -q -f qcow2 image 64M
qemu-io -c 'write -q -P 7 1M 5M' -c 'read -q -P 7 1M 5M' image
qemu-img convert -m 8 -W -O raw image raw
sha1sum < raw
qemu-img check -q image
for engine in threads io_uring; do qemu-img bench --aio=$engine -c 1000 -d 16 -f raw raw > /dev/null || echo "$engine failed"; done
for engine in psync sync posixaio libaio io_uring mmap pvsync2; do
  fio --name=job --thread --numjobs=4 --ioengine=$engine --size=4m --bs=4k --rw=randrw --verify=crc32c \
    --filename_format='fio.$jobnum' --group_reporting --output-format=terse > out 2>&1 || { echo "$engine failed"; cat out; }
done
