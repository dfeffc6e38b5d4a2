// OpenMP: loops shared out, tasks, critical sections, barriers, locks, nested teams.
#include <omp.h>
#include <stdio.h>

static long fibonacci(int n) {
    if (n < 2) return n;
    long a, b;
#pragma omp task shared(a) firstprivate(n) if (n > 10)
    a = fibonacci(n - 1);
#pragma omp task shared(b) firstprivate(n) if (n > 10)
    b = fibonacci(n - 2);
#pragma omp taskwait
    return a + b;
}

int main(void) {
    long sum = 0;
#pragma omp parallel for num_threads(8) schedule(dynamic, 100) reduction(+ : sum)
    for (long n = 0; n < 2000000; n++) sum += n % 7 * (n % 11);
    printf("sum %ld\n", sum);

    long found = 0;
#pragma omp parallel num_threads(8)
#pragma omp single
    found = fibonacci(24);
    printf("tasks %ld\n", found);

    long counted = 0, critical = 0;
    omp_lock_t lock;
    omp_init_lock(&lock);
#pragma omp parallel num_threads(6)
    for (int n = 0; n < 2000; n++) {
        omp_set_lock(&lock);
        counted++;
        omp_unset_lock(&lock);
#pragma omp critical
        critical++;
    }
    omp_destroy_lock(&lock);
    printf("locked %ld %ld\n", counted, critical);

    int step[4] = {0}, wrong = 0;
#pragma omp parallel num_threads(4)
    for (int n = 1; n <= 500; n++) {
        step[omp_get_thread_num()] = n;
#pragma omp barrier
        for (int other = 0; other < 4; other++)
            if (step[other] != n) {
#pragma omp atomic
                wrong++;
            }
#pragma omp barrier
    }
    printf("barriers %d\n", wrong);

    int members = 0;
    omp_set_max_active_levels(2);
#pragma omp parallel num_threads(3)
#pragma omp parallel num_threads(3)
#pragma omp atomic
    members++;
    printf("nested %d\n", members);
}
