/* One process that acquires locks of every kind, and checks the board while it holds them. */
#ifndef HAMMER_WORKER_H
#define HAMMER_WORKER_H

#include "hammer_board.h"

struct worker {
    struct board *board;
    struct claim *claim;
    const char *store_url;
    int number;
    unsigned seed;
};

/* Until the board says that it is over. Returns the exit status. */
int worker_run(const struct worker *worker);

#endif
