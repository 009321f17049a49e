/*
 *     sim --seed N [--verbose]        one world, with its trace
 *     sim --seeds N, --seeds A-B      many; ends at the first violation
 *     sim ... --brief                 of a violation only the seed and the promise
 *
 * The last line says how many seeds passed and failed. Exit code 0: all
 * promises were kept; 1: one was not; 64: usage.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "sim/sim.h"

enum { REPLAY_EVERY = 20, SEES_ALL_IN = 2000 /* seeds in which everything happens */ };

struct options {
    uint64_t from;
    uint64_t to;
    bool verbose;
    bool brief;
};

/*
 * src/lock must have no clock of its own. If it asks for one nevertheless it
 * gets that of the client it runs for, wall steps and all, and the promises
 * tell (the program is linked with --wrap).
 */
static struct sim *running;

int64_t __wrap_clock_unix_ms(void);
int64_t __wrap_clock_boot_ms(void);

int64_t __wrap_clock_unix_ms(void)
{
    return sim_wall_ms(running, running->acting_client);
}

int64_t __wrap_clock_boot_ms(void)
{
    return sim_boot_ms(running, running->acting_client);
}

/* From src/client, which is not linked here; only memstore's wait() uses it, which is never called. */
bool belay_cancel_requested(const struct belay_cancel *cancel)
{
    (void)cancel;
    return false;
}

/* "A-B", or "B" for 1 to B. */
static bool parse_range(const char *text, struct options *out)
{
    char *end;
    uint64_t first = strtoull(text, &end, 10);

    out->from = *end == '-' ? first : 1;
    out->to = *end == '-' ? strtoull(end + 1, &end, 10) : first;
    return *end == '\0' && out->from <= out->to;
}

static bool parse(int argc, char **argv, struct options *out)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--verbose") == 0) {
            out->verbose = true;
        } else if (strcmp(argv[i], "--brief") == 0) {
            out->brief = true;
        } else if ((strcmp(argv[i], "--seed") == 0 || strcmp(argv[i], "--seeds") == 0) && i + 1 < argc &&
                   parse_range(argv[i + 1], out)) {
            out->from = strcmp(argv[i], "--seed") == 0 ? out->to : out->from;
            i++;
        } else {
            return false;
        }
    }
    return true;
}

static void report(const struct sim *sim, bool brief)
{
    printf("seed %" PRIu64 " violates %s at %" PRId64 " ms: %s\n", sim->seed, sim->violated, sim->t,
           sim->violation);
    if (brief) {
        return;
    }
    printf("faults:%s%s%s%s%s%s%s%s%s, latency %" PRId64 " ms; the last events:\n",
           sim->swarm.dynamo ? " dynamo" : "", sim->swarm.fail ? " fail" : "", sim->swarm.lose ? " lose" : "",
           sim->swarm.late ? " late" : "", sim->swarm.duplicate ? " duplicate" : "",
           sim->swarm.pause ? " pause" : "", sim->swarm.crash ? " crash" : "",
           sim->swarm.lose_wakes ? " lose-wakes" : "", sim->swarm.drift ? " drift" : "",
           sim->swarm.latency_ms);
    if (!sim->verbose) {
        sim_print_trace(sim);
    }
}

/* The same world must come out the same, and also if no wall clock ever steps (L7). */
static bool replays(struct sim *sim, uint64_t seed)
{
    uint64_t hash = sim->hash;

    if (!sim_run(sim, seed, true, false) || sim->hash != hash) {
        printf("seed %" PRIu64 " violates I7: it does not replay\n", seed);
        return false;
    }
    if (!sim_run(sim, seed, false, false) || sim->hash != hash) {
        printf("seed %" PRIu64 " violates L7: a wall clock that steps changes what happens\n", seed);
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct options options = { 1, 1000, false, false };
    struct sim *sim;
    uint64_t steps = 0;
    uint64_t passed = 0;
    uint64_t hash = 0;
    bool kept = true;

    if (!parse(argc, argv, &options)) {
        fprintf(stderr, "usage: sim [--seed N | --seeds N | --seeds A-B] [--verbose] [--brief]\n");
        return 64;
    }
    running = sim = sim_new();
    for (uint64_t seed = options.from; seed <= options.to && kept; seed++) {
        kept = sim_run(sim, seed, true, options.verbose);
        if (!kept) {
            report(sim, options.brief);
            break;
        }
        steps += sim->steps;
        hash ^= sim->hash + seed;
        kept = (seed % REPLAY_EVERY != 0 && options.from != options.to) || replays(sim, seed);
        passed += kept;
    }
    if (!options.brief && !sim_print_seen(sim) && passed >= SEES_ALL_IN) {
        printf("something was never seen: the seeds prove nothing of it\n");
        kept = false;
    }
    sim_free(sim);
    printf("%" PRIu64 " steps, trace hash %016" PRIx64 "\n", steps, hash);
    printf("%" PRIu64 " passed, %d failed\n", passed, kept ? 0 : 1);
    return kept ? 0 : 1;
}
