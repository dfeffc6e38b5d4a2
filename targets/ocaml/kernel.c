/* What OCaml's library does not ask of the kernel: a clock that only goes forward, its counts, and the
   core for another thread. */

#include <sched.h>
#include <sys/resource.h>
#include <time.h>

#include <caml/mlvalues.h>

/* Nanoseconds. */
value carefree_now(value unit) {
    struct timespec now;
    (void)unit;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return Val_long(now.tv_sec * 1000000000L + now.tv_nsec);
}

/* 0: voluntary switches; 1: involuntary ones; 2, 3: nanoseconds of user and of system time. */
value carefree_usage(value which) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    switch (Long_val(which)) {
    case 0:
        return Val_long(used.ru_nvcsw);
    case 1:
        return Val_long(used.ru_nivcsw);
    case 2:
        return Val_long(used.ru_utime.tv_sec * 1000000000L + used.ru_utime.tv_usec * 1000L);
    default:
        return Val_long(used.ru_stime.tv_sec * 1000000000L + used.ru_stime.tv_usec * 1000L);
    }
}

/* Gives up the core, and not the lock of the runtime. */
value carefree_give_way(value unit) {
    sched_yield();
    return unit;
}
