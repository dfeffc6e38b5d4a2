# mold and LLVM's linker, whose threads read and write a program's parts at once.
for each in $(seq 300); do echo "int f$each(int x) { return x * $each; }"; done | split -l 10 --additional-suffix=.c - part
printf '#include <stdio.h>\nint f7(int);\nint main(void) { printf("%%d\\n", f7(6)); }\n' > main.c
gcc -c ./*.c
libraries=$(dirname "$(gcc -print-file-name=crt1.o)")
for linker in "mold --thread-count=4" "ld.lld --threads=4"; do
  $linker -o program "$libraries/crt1.o" "$libraries/crti.o" ./*.o -L"$libraries" -lc "$libraries/crtn.o" \
    -dynamic-linker /lib64/ld-linux-x86-64.so.2 && ./program && sha1sum < program
done
