/* A C library as others write them: it knows nothing of fibers. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <threads.h>
#include <unistd.h>

/* A queue of bounded length, set up by static initializers. */

enum { ROOM = 4 };

static struct {
	pthread_mutex_t mutex;
	pthread_cond_t filled, emptied;
	long items[ROOM];
	int first, count;
} queue = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER };

void queue_put(long item)
{
	pthread_mutex_lock(&queue.mutex);
	while (queue.count == ROOM)
		pthread_cond_wait(&queue.emptied, &queue.mutex);
	queue.items[(queue.first + queue.count++) % ROOM] = item;
	pthread_cond_signal(&queue.filled);
	pthread_mutex_unlock(&queue.mutex);
}

long queue_take(void)
{
	pthread_mutex_lock(&queue.mutex);
	while (queue.count == 0)
		pthread_cond_wait(&queue.filled, &queue.mutex);
	long item = queue.items[queue.first];
	queue.first = (queue.first + 1) % ROOM;
	queue.count--;
	pthread_cond_signal(&queue.emptied);
	pthread_mutex_unlock(&queue.mutex);
	return item;
}

/* The same turn-taking with C11's names. */

static mtx_t turn_mutex;
static cnd_t turn_changed;
static int turn;

int turns_begin(void)
{
	turn = 0;
	return mtx_init(&turn_mutex, mtx_plain) == thrd_success &&
	       cnd_init(&turn_changed) == thrd_success;
}

void turn_take(int me, int all)
{
	mtx_lock(&turn_mutex);
	while (turn % all != me)
		cnd_wait(&turn_changed, &turn_mutex);
	turn++;
	cnd_broadcast(&turn_changed);
	mtx_unlock(&turn_mutex);
}

/* Threads that are cancelled while they wait. */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static int ends[2];
static sem_t semaphore;
static volatile int waits, cleaned;

static void unlock(void *unused)
{
	(void)unused;
	pthread_mutex_unlock(&mutex);
	cleaned = 1;
}

static void *wait_for(void *what)
{
	char byte;
	struct pollfd file = { .fd = ends[0], .events = POLLIN };
	waits = 1;
	switch ((long)what) {
	case 0:
		return (void *)(long)read(ends[0], &byte, 1);
	case 1:
		return (void *)(long)poll(&file, 1, -1);
	case 2:
		return (void *)(long)sleep(1000);
	case 3:
		return (void *)(long)sem_wait(&semaphore);
	default:
		pthread_mutex_lock(&mutex);
		pthread_cleanup_push(unlock, NULL);
		for (;;)
			pthread_cond_wait(&never, &mutex);
		pthread_cleanup_pop(1);
	}
	return NULL;
}

/* Whether a thread that waits for the thing of that number can be cancelled. */
int can_be_cancelled(long what)
{
	pthread_t thread;
	void *result;
	waits = cleaned = 0;
	if (pipe(ends) || sem_init(&semaphore, 0, 0))
		abort();
	if (pthread_create(&thread, NULL, wait_for, (void *)what))
		abort();
	while (!waits)
		usleep(1000);
	usleep(10000);
	pthread_cancel(thread);
	pthread_join(thread, &result);
	close(ends[0]);
	close(ends[1]);
	return result == PTHREAD_CANCELED && (what < 4 || cleaned);
}
