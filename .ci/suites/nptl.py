"""Builds glibc's own tests of threads against the libc that is installed, for .ci/run-suites:
nptl.py SOURCE PROGRAMS.

Those that need glibc's internals do not compile, and are left out: `build.log` says which. Their flags and
modules are read from glibc's Makefiles; the library that they share, `support`, is built of what compiles.
"""
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Headers that glibc does not install, and that stand alone.
HEADERS = """include/array_length.h include/libc-diag.h include/intprops.h include/libc-pointer-arith.h
    sysdeps/x86/tst-stack-align.h nptl/tst-tls5.h""".split()
# Others, and what of them the tests need.
OURS = {
    "prelude.h": "#define _GNU_SOURCE 1\n#include <errno.h>\n#include <limits.h>\n#define attribute_hidden\n"
                 "#define libc_hidden_proto(name)\n#define __set_errno(value) (errno = (value))\n"
                 "#define TIMEOUTFACTOR 1\n",
    "stackinfo.h": "#include <elf.h>\n#define _STACK_GROWS_DOWN 1\n#define DEFAULT_STACK_PERMS (PF_R | PF_W)\n",
    "shlib-compat.h": "#define TEST_COMPAT(...) 0\n#define SHLIB_COMPAT(...) 0\n",
    "dso_handle.h": "extern void *__dso_handle;\n", "config.h": "", "sysdep.h": "", "atomic.h": "",
}
# Where glibc was built and is installed, which these tests do not ask for.
PATHS = [f'-D{name}_PATH="/nonexistent"' for name in
         """SRCDIR OBJDIR OBJDIR_ELF_LDSO INSTDIR BINDIR SBINDIR ROOTSBINDIR INSTLIB SYSCONFDIR INSTCOMPLOCALEDIR
            ROOTSBIN SLIB COMPLOCALEDIR LOCALEDIR LIBDIR SLIBDIR""".split()]


def rules(makefiles):
    """Of each program, what the Makefiles say to compile it with, and which modules it is linked to."""
    flags, modules = {}, {}
    for makefile in makefiles:
        text = makefile.read_text().replace("\\\n", " ")
        for name, said in re.findall(r"^(?:CFLAGS|LDFLAGS|LDLIBS)-([\w.-]+) \+?= (.*)$", text, re.M):
            # (Those of modules are named with ".so".)
            stem = name.removesuffix(".c").removesuffix(".so")
            flags.setdefault(stem, []).extend(each for each in said.split() if "$" not in each)
        for name, needs in re.findall(r"^\$\(objpfx\)([\w-]+)(?:\.so)?: (.*)$", text, re.M):
            modules.setdefault(name, []).extend(re.findall(r"\$\(objpfx\)([\w-]+)\.(?:so|o)\b", needs))
    return flags, modules


class Build:
    def __init__(self, source, programs):
        self.source, self.programs = source, programs
        self.places = [source / "sysdeps/pthread", source / "nptl"]
        self.flags, self.modules = rules(place / "Makefile" for place in self.places)
        include, objects = programs / "include", programs / "objects"
        for folder in (include, objects):
            folder.mkdir(parents=True, exist_ok=True)
        for name, text in OURS.items():
            (include / name).write_text(text)
        for name in HEADERS:
            (include / Path(name).name).write_bytes((source / name).read_bytes())
        for name in ("support", "test-skeleton.c", "nptl", "sysdeps", "posix", "elf"):
            (include / name).unlink(missing_ok=True)
            (include / name).symlink_to(source / name)
        self.common = ["gcc", "-std=gnu11", "-w", "-O2", "-U_FORTIFY_SOURCE", "-include", include / "prelude.h",
                       f"-I{include}", f"-I{source}/support", f"-iquote{source}",
                       *(f"-iquote{place}" for place in self.places)]
        self.log = open(programs / "build.log", "w")

    def compile(self, output, *arguments):
        done = subprocess.run([*self.common, *map(str, arguments), "-o", output],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            wrong = [line for line in done.stdout.splitlines() if "error" in line or "undefined" in line]
            self.log.write(f"{output.name}: {wrong[0] if wrong else done.stdout}\n")

    def support(self, path):
        self.compile(self.programs / "objects" / (path.stem + ".o"), "-c", *PATHS, path)

    def module(self, path):
        self.compile(self.programs / (path.stem + ".so"), "-shared", "-fPIC", *self.flags.get(path.stem, []),
                     path, *self.needed(path))

    def program(self, path):
        self.compile(self.programs / path.stem, *self.flags.get(path.stem, []), path, *self.needed(path),
                     self.programs / "libsupport.a", "-lm", "-Wl,-rpath,$ORIGIN")

    def needed(self, path):
        return [self.programs / (name + ".so") for name in self.modules.get(path.stem, [])]

    def all(self):
        tests = sorted(path for place in self.places for path in place.glob("tst-*.c"))
        modules = [path for path in tests if re.search(r"mod[0-9]?[a-z]?$|aux$", path.stem)]
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            list(pool.map(self.support, [path for path in (self.source / "support").glob("*.c")
                                         if not path.stem.startswith(("tst-", "test-"))]))
            objects = (self.programs / "objects").glob("*.o")
            subprocess.run(["ar", "rcs", self.programs / "libsupport.a", *objects], check=True)
            # One after the other: some are linked to those before.
            for part in modules:
                self.module(part)
            programs = [path for path in tests if path not in modules and not path.stem.endswith("-static")]
            list(pool.map(self.program, programs))


Build(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()).all()
