// Variables of a thread's own in a library, with initial values that differ from library to library
// (-DSTART). Built with -ftls-model=initial-exec they have a fixed place in every thread's storage.
#include <stdint.h>
#include <string.h>

#ifndef START
#define START 42
#endif

static int here;

__thread int number = START;
__thread char text[16] = "initial";
__thread int *pointer = &here;
__thread long zero;
#ifdef ROOM
__thread char room[ROOM];
#endif

static int at_load;

intptr_t initial(void) {
    return number == START && strcmp(text, "initial") == 0 && pointer == &here && zero == 0;
}

__attribute__((constructor)) static void begin(void) {
    at_load = initial();
}

intptr_t initial_at_load(void) { return at_load; }

intptr_t spoil(void) {
    number = 1;
    strcpy(text, "spoilt");
    pointer = 0;
    return ++zero;
}

intptr_t spoilt(void) {
    return number == 1 && strcmp(text, "spoilt") == 0 && pointer == 0 && zero == 1;
}
