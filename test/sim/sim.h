/*
 * The simulator: src/lock's own state machines on virtual time, over a store in
 * memory that can be slow, deaf, late and repeat itself.
 *
 *     clients ---- op wants a commit ---> net ---- arrives ----> memstore
 *      (client.c)  <--- answer, or none -- (net.c)                (support)
 *         |                                   |
 *         +---------- check.c checks every step --------------+
 *
 * One seed is one world: all actions, failures and times come from it,
 * so that a seed replays to the last event. Time is `t`, in milliseconds, true
 * time; each client has a boot clock of its own that drifts, and a wall clock
 * that jumps. Nothing else is a clock.
 */
#ifndef SIM_SIM_H
#define SIM_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lock/lease.h"
#include "lock/op.h"
#include "support/memstore.h"

enum {
    SIM_CLIENTS_MAX = 6,
    SIM_TASKS_MAX = 96,
    SIM_KEYS = 5,
    SIM_JOINT_MAX = 3, /* keys that one task takes at once */
    SIM_SLOTS_MAX = 4,
    SIM_TRACE_KEPT = 60,
    SIM_ID_SIZE = 16,
    SIM_STEPS_PER_OP = 4000,
    SIM_STEPS_MAX = 60000,
    SIM_DRIFT_MAX_PPM = 20000 /* within the lead of a lease, ttl / 20 */
};

/* The store's clock, as a distinct name. */
#define SIM_STORE_EPOCH_MS INT64_C(77000000)

/* ---- chance, time and memory (engine.c) --------------------------------- */

struct rng {
    uint64_t state;
};
uint64_t rng_next(struct rng *rng);
int64_t rng_range(struct rng *rng, int64_t from, int64_t to); /* both included */
bool rng_percent(struct rng *rng, int percent);

struct sim;
struct request;

enum event_kind {
    EVENT_SPAWN,  /* a client begins its next task */
    EVENT_ARRIVE, /* a request reaches the store */
    EVENT_ANSWER, /* its answer, or the lack of one, reaches the client */
    EVENT_TIMER,  /* the wait of an op ends */
    EVENT_WAKE,   /* a waiter was woken */
    EVENT_LEASE,  /* a lease wants a look */
    EVENT_ACT,    /* a task continues with its plan */
    EVENT_CANCEL, /* the user gives up waiting */
    EVENT_PAUSE,
    EVENT_RESUME,
    EVENT_CRASH
};

struct event {
    int64_t t;
    uint64_t seq;
    enum event_kind kind;
    int client;
    int gen; /* of the client: a crash ends what was under way */
    int task;
    int slot;
    unsigned serial; /* of the op or the plan it was meant for */
    struct request *request;
};

struct heap {
    struct event *events; /* owned */
    size_t n;
    size_t cap;
    uint64_t seq;
};
void heap_push(struct heap *heap, struct event event);
bool heap_pop(struct heap *heap, struct event *out_event);

/* All memory of a world is freed at once with it. */
struct arena {
    struct arena_block *blocks; /* owned */
};
void *arena_alloc(struct arena *arena, size_t size);
char *arena_copy(struct arena *arena, const char *text);
void arena_reset(struct arena *arena);
void arena_release(struct arena *arena);

/* A batch that outlives the op that made it. */
void batch_copy(struct arena *arena, const struct belay_batch *from, struct belay_batch *out_batch);

/* ---- what a seed decides ------------------------------------------------- */

/* While it lasts, no lock on the key is acquired anew. */
struct freeze {
    int64_t from_t;
    int64_t until_t; /* not after from_t: there is none */
};

struct swarm {
    bool dynamo; /* clocks within a margin, no memory of ids, no wake-ups, no dead marks */
    bool fail;   /* the faults, each on or off */
    bool lose;
    bool late;
    bool duplicate;
    bool pause;
    bool crash;
    bool lose_wakes;
    bool drift;
    bool plain;        /* exclusive locks of one key only */
    int joint_percent; /* of tasks that want several keys */
    int percent;       /* of requests that meet a fault */
    int64_t latency_ms;
    int64_t timeout_ms;
    int64_t busy_until; /* no new tasks and no new faults from here on */
    int64_t late_ms;    /* how late a late request can be */
    int n_clients;
    int n_tasks;
    int n_keys;
    int slots[SIM_KEYS]; /* of a counting lock on that key; a few tasks ask for another number */
    struct freeze freezes[SIM_KEYS];
};

struct client {
    int64_t boot_offset;
    int64_t drift_ppm;
    int64_t skew_ms; /* dynamo: of its idea of the service's time */
    int gen;
    bool paused;
    int64_t resume_t;
    int64_t resumed_t;
};

/* The state of a task's operation. */
enum act { ACT_ACQUIRE, ACT_ADOPT, ACT_RENEW, ACT_RELEASE, ACT_FORCE };

enum phase { PHASE_ACQUIRING, PHASE_HOLDING, PHASE_ENDING, PHASE_DONE };

enum plan_kind { PLAN_ACQUIRE, PLAN_ADOPT, PLAN_ROGUE, PLAN_FORCE };

enum plan_end { END_RELEASE, END_RELEASE_TWICE, END_LEAVE, END_HAND_OVER };

enum { SLOT_MAIN, SLOT_BEAT, SLOTS };

/* The life of one acquisition, or one act of an intruder. */
struct task {
    int client;
    int gen;
    int key; /* the first of `keys` */
    int keys[SIM_JOINT_MAX];
    int n_keys;
    enum belay_mode mode;
    int slots;
    struct op_joint joint; /* if n_keys > 1 */
    enum phase phase;
    enum plan_kind plan;
    enum plan_end end;
    enum act rogue_act;
    char id[SIM_ID_SIZE];
    char owner[SIM_ID_SIZE];
    char target[SIM_ID_SIZE]; /* adopt, rogue, force: whose id it names */
    int64_t ttl_ms;
    int64_t heartbeat_ms;
    int64_t hold_ms;
    int64_t cancel_ms; /* < 0: never */
    int repeats;       /* acquires left with the same id */
    bool release_after_loss;
    bool renew_by_hand;
    bool says_mode; /* its renewals and releases name the mode; else they have to find out */

    struct op_request request[SLOTS];
    struct op op[SLOTS];
    enum act act[SLOTS];
    bool op_runs[SLOTS];
    unsigned op_serial[SLOTS];
    int op_steps[SLOTS];
    int op_faults[SLOTS]; /* how many faults its requests have met */
    int64_t op_began_t[SLOTS];
    unsigned act_serial;
    unsigned lease_serial;
    uint32_t wakes;    /* that have come for it */
    uint32_t listened; /* that had come before it last looked */
    int64_t due_since; /* L4: it waits, and could have its locks; -1: not so */
    bool was_frozen;   /* its present operation was refused by a freeze */
    int due_ghosts;    /* how many tickets of others have been before it since then */

    struct lease lease;
    bool believes; /* it thinks that it holds the lock, and was not told otherwise */
};

/* A lock id on one key, seen from outside. */
struct holding {
    bool taken;
    char owner[SIM_ID_SIZE]; /* as the store has it: an adopter may keep the former one */
    uint64_t token;
    int64_t taken_t;
    int64_t expires_ms;  /* of its lease, by the store's clock */
    bool ended_by_other; /* forced, adopted, or released by a client that knew the id */
    bool gave_back;      /* a release of its own was applied */
    int64_t gave_back_t;
    unsigned gave_back_n; /* how many releases of the key there were until then */
    bool orphan;          /* taken by a duplicate, where ids are not remembered (L5's exception) */
};

/* An outside view of a lock id. Its number is that of its task. */
struct identity {
    struct holding on[SIM_KEYS];
    bool left_unknown; /* an op of it ended as unknown, or with its client */
    bool said_no;      /* an acquire of it ended with a clear no */
};

struct glance_holder {
    int id; /* -1: none of ours */
    uint64_t token;
    int64_t expires_ms;
    int64_t ttl_ms;
};

/* A record in short, to compare before and after. */
struct glance {
    bool exists;
    enum belay_mode mode;
    int slots;
    int last_id; /* the record's own: of the holder that it shows, or of the last one */
    enum belay_outcome outcome;
    uint64_t others; /* hash of tickets and intents */
    int n_holders;   /* 0: not held. Those whose leases have ended are among them. */
    struct glance_holder holders[SIM_TASKS_MAX];
};

struct key_info {
    uint64_t max_token;
    int64_t freed_t;                    /* when it was last released, by one of its holders */
    unsigned n_released;                /* not by force */
    int64_t exclusive_t;                /* when it was last acquired exclusively; -1: never */
    int64_t slots_t[SIM_SLOTS_MAX + 1]; /* when it last had that many slots; -1: never */
};

struct trace_entry {
    int64_t t;
    const char *what;
    int client;
    int task;
    int key;
    int64_t a;
    int64_t b;
};

/* Events that must occur among the seeds: doing nothing would keep all promises. */
enum seen {
    SEEN_TAKEN,       /* by a try */
    SEEN_HANDED_OVER, /* by a waiter */
    SEEN_TAKEN_OVER,  /* after a lease had ended */
    SEEN_BELOW,       /* with intents */
    SEEN_ADOPTED,
    SEEN_REENTERED,
    SEEN_FOUND_AGAIN, /* by a retry, after a lost answer */
    SEEN_GIVEN_BACK,  /* a release whose answer was lost, found done by its retry */
    SEEN_RENEWED,
    SEEN_FORCED,
    SEEN_HELD,
    SEEN_USED,
    SEEN_UNKNOWN,
    SEEN_CANCELLED,
    SEEN_NOT_HOLDER,
    SEEN_LOST,
    SEEN_OUT_OF_DATE, /* a late or repeated request that changed nothing */
    SEEN_LATE,        /* one that did */
    SEEN_WAKE_LOST,
    SEEN_PAUSED,
    SEEN_CRASHED,
    SEEN_SHARED_TOGETHER, /* a shared lock beside another */
    SEEN_SHARED_BELOW,    /* a shared lock below or above another */
    SEEN_SLOT_BESIDE,     /* a slot beside another */
    SEEN_LAST_SLOT,
    SEEN_OTHER_SLOTS,
    SEEN_CO_HANDED_OVER, /* to a waiter, beside others */
    SEEN_CO_EXPIRED,     /* one of several holders was dropped, the others stay */
    SEEN_CO_RELEASED,
    SEEN_CO_FORCED,
    SEEN_CO_ADOPTED,
    SEEN_CO_RENEWED,
    SEEN_CO_FOUND_AGAIN,
    SEEN_CO_RELEASED_TWICE, /* while others hold the lock */
    SEEN_JOINT_TAKEN,
    SEEN_JOINT_HANDED_OVER,
    SEEN_JOINT_ADOPTED,
    SEEN_JOINT_FOUND_AGAIN,
    SEEN_FROZEN,           /* an acquisition was refused by a freeze */
    SEEN_THAWED,           /* one that waited for its end has the lock */
    SEEN_KEPT_FROZEN,      /* a renewal while the key was frozen */
    SEEN_JOINT_PART_ENDED, /* the rest of a joint lock was released after one of its keys was lost */
    SEEN_KINDS
};

struct sim {
    uint64_t seen[SEEN_KINDS]; /* over all seeds so far */
    uint64_t seed;
    bool verbose;
    bool wall_steps;
    struct rng rng;
    struct swarm swarm;
    struct belay_store_capabilities capabilities;
    int64_t t;
    uint64_t steps;
    struct heap heap;
    struct arena arena;
    struct memstore_data *data;
    struct belay_store *store;
    int acting_client; /* whose request the store is working on: for its clocks */

    struct client clients[SIM_CLIENTS_MAX];
    struct task tasks[SIM_TASKS_MAX];
    struct identity ids[SIM_TASKS_MAX];
    int n_tasks;
    struct key_info keys[SIM_KEYS];

    struct trace_entry trace[SIM_TRACE_KEPT];
    uint64_t n_trace;
    uint64_t hash;

    const char *violated; /* the promise; NULL while all is well */
    char violation[512];
};

/* ---- the world (world.c) ------------------------------------------------- */

extern const char *const sim_keys[SIM_KEYS];
size_t sim_ancestors(int key, const char *out[BELAY_ANCESTORS_MAX]);
int sim_key_index(const char *key);
bool sim_keys_conflict(int a, int b); /* the same, or one above the other */
bool sim_has_key(const struct task *task, int key);
/* The key is frozen, or was until less than `after_ms` ago. */
bool sim_is_frozen(const struct sim *sim, int key, int64_t after_ms);

struct sim *sim_new(void);
void sim_free(struct sim *sim);
/* True if nothing was violated. */
bool sim_run(struct sim *sim, uint64_t seed, bool wall_steps, bool verbose);

int64_t sim_boot_ms(const struct sim *sim, int client);
int64_t sim_true_at(const struct sim *sim, int client, int64_t boot_ms);
int64_t sim_wall_ms(const struct sim *sim, int client);
bool sim_is_awake(const struct sim *sim, int client);
int sim_id_number(const char *id); /* -1: none of ours */
void sim_push(struct sim *sim, int64_t t, struct event event);
void sim_note(struct sim *sim, const char *what, int client, int task, int key, int64_t a, int64_t b);
void sim_fail(struct sim *sim, const char *promise, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void sim_print_trace(const struct sim *sim);
void sim_saw(struct sim *sim, enum seen seen);
/* Print what was seen. False if something never was. */
bool sim_print_seen(const struct sim *sim);

/* ---- requests on their way (net.c) --------------------------------------- */

enum fate { FATE_WELL, FATE_FAIL, FATE_LOSE, FATE_LATE, FATE_DUPLICATE };

struct request {
    int client;
    int gen;
    int task;
    int slot;
    unsigned serial;
    enum act act;
    bool keeps_ttl; /* a renewal that names none */
    int key;
    int targets[SIM_JOINT_MAX];
    int n_targets;
    int id;     /* of the request's lock_id; -1: none of ours */
    int old_id; /* adopt */
    bool is_get;
    const char *keys[SIM_KEYS];
    size_t n_keys;
    struct belay_batch batch;
    int64_t sent_ms;
    int64_t sent_t;
    enum fate fate;
    bool answered;
    bool again; /* this delivery is one that the client no longer knows of */
    enum belay_code code;
    struct belay_error err;
    struct belay_commit commit;
    struct belay_record records[SIM_KEYS];
    int64_t now_ms;
};

void net_send(struct sim *sim, int number, int slot); /* what that task's op wants */
void net_arrive(struct sim *sim, struct request *request);
void net_answer(struct sim *sim, struct request *request); /* to the op, if it still waits */
void net_discard_event(const struct event *event);         /* one that never takes place */
void net_wake(struct sim *sim, const char *lock_id);

/* ---- clients (client.c, plan.c) ------------------------------------------ */

void client_spawn(struct sim *sim, int client);
void client_drive(struct sim *sim, int number, int slot);
void client_on_event(struct sim *sim, const struct event *event);
void client_crash(struct sim *sim, int client);
int plan_new(struct sim *sim, int client); /* the task's number, or -1: enough of them */
int plan_adopt(struct sim *sim, int client, int from);

/* ---- the promises (check.c, check_state.c, check_queue.c, check_end.c) ------ */

void check_begin(const struct sim *sim, struct glance glances[SIM_KEYS]);
/* Remember the numbers of slots in force. */
void check_note_slots(struct sim *sim, const struct glance glances[SIM_KEYS]);
const struct glance_holder *check_find_holder(const struct glance *glance, int id);
/* After a delivery to the store. */
void check_delivery(struct sim *sim, const struct request *request, const struct glance before[SIM_KEYS],
                    const struct belay_record *copies, size_t n_copies);
void check_state(struct sim *sim);
void check_op_end(struct sim *sim, int number, int slot);
void check_lease(struct sim *sim, int number);
/* The queue: which waiter may acquire, and which must. `records` are those of before. */
void check_turn(struct sim *sim, int key, int id, const struct belay_record *records, size_t n);
/* The lock, or one above or below, changed hands: the waiting time restarts. */
void check_changed_hands(struct sim *sim, int key);
void check_hand_over(struct sim *sim);
void check_liveness(struct sim *sim);

/* Holders of a record, exclusive or several: the i-th; false: there are no more. */
bool check_holder_at(const struct belay_record *record, size_t i, struct belay_holder *out_holder);
/* Two clients that want locks on keys of which one is the other's, or above it: both may have theirs at once. */
bool check_get_along(int key, enum belay_mode mode, int slots, int other_key, enum belay_mode other_mode,
                     int other_slots);

#endif
