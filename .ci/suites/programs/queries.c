// libpq from several threads, each with a connection of its own: waits on both sides, notifications, a cancel.
#include <libpq-fe.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static PGconn *connect_or_end(void) {
    PGconn *connection = PQconnectdb("");
    if (PQstatus(connection) != CONNECTION_OK) {
        fprintf(stderr, "%s", PQerrorMessage(connection));
        exit(1);
    }
    return connection;
}

static long number(PGconn *connection, const char *query) {
    PGresult *result = PQexec(connection, query);
    if (PQresultStatus(result) != PGRES_TUPLES_OK && PQresultStatus(result) != PGRES_COMMAND_OK) {
        fprintf(stderr, "%s", PQerrorMessage(connection));
        exit(1);
    }
    long value = PQntuples(result) ? atol(PQgetvalue(result, 0, 0)) : 0;
    PQclear(result);
    return value;
}

static void *work(void *argument) {
    PGconn *connection = connect_or_end();
    long own = (long)(intptr_t)argument, sum = 0;
    char query[100];
    for (long n = 0; n < 20; n++) {
        snprintf(query, sizeof query, "select %ld from pg_sleep(0.002)", own * 100 + n);
        sum += number(connection, query);
        // All for one row's lock.
        number(connection, "update counter set n = n + 1");
    }
    PQfinish(connection);
    return (void *)(intptr_t)sum;
}

static PGconn *sleeper;

static void *sleeps(void *argument) {
    PGresult *result = PQexec(sleeper, "select pg_sleep(60)");
    int failed = PQresultStatus(result) == PGRES_FATAL_ERROR;
    PQclear(result);
    return (void *)(intptr_t)failed;
}

int main(void) {
    PGconn *connection = connect_or_end();
    number(connection, "create table counter as select 0 as n");
    pthread_t threads[12];
    long sum = 0;
    void *result;
    for (long n = 0; n < 12; n++) pthread_create(&threads[n], NULL, work, (void *)(intptr_t)n);
    for (int n = 0; n < 12; n++) {
        pthread_join(threads[n], &result);
        sum += (long)(intptr_t)result;
    }
    printf("sum %ld, counter %ld\n", sum, number(connection, "select n from counter"));
    sleeper = connect_or_end();
    pthread_create(&threads[0], NULL, sleeps, NULL);
    usleep(100000);
    PGcancel *cancel = PQgetCancel(sleeper);
    char error[256];
    int sent = PQcancel(cancel, error, sizeof error);
    pthread_join(threads[0], &result);
    printf("cancelled %d %ld\n", sent, (long)(intptr_t)result);
    PQfreeCancel(cancel);
    PQfinish(sleeper);
    number(connection, "drop table counter");
    PQfinish(connection);
}
