/*
 * Stores with exactly one fault each, to prove that the suite finds it. Each
 * delegates to a real store and breaks one rule of the port.
 */
#ifndef SUPPORT_FAULTY_STORE_H
#define SUPPORT_FAULTY_STORE_H

#include "belay/store.h"

#define FAULTY_RULES(X)                                                                                      \
    X(NOTHING, nothing)                                                                                      \
    /* conditions */                                                                                         \
    X(IGNORES_ABSENT, ignores_absent)                                                                        \
    X(QUEUES_FOR_WHAT_IS_FREE, queues_for_what_is_free)                                                      \
    X(IGNORES_TURNS, ignores_turns)                                                                          \
    X(TAKES_TURNS_WHILE_HELD, takes_turns_while_held)                                                        \
    X(IGNORES_FREE, ignores_free)                                                                            \
    X(FREE_IGNORES_TICKETS, free_ignores_tickets)                                                            \
    X(FREE_IGNORES_TICKETS_THAT_ARE_OVER, free_ignores_tickets_that_are_over)                                \
    X(FREE_IGNORES_INTENTS, free_ignores_intents)                                                            \
    X(FREE_ACCEPTS_THE_LAST_ID, free_accepts_the_last_id)                                                    \
    X(FREE_TAKES_WHAT_IS_OVER, free_takes_what_is_over)                                                      \
    X(FREE_WANTS_NO_RECORD, free_wants_no_record)                                                            \
    X(FREE_ASKS_FOR_AN_ID_IT_DOES_NOT_SET, free_asks_for_an_id_it_does_not_set)                              \
    X(OPEN_MINDS_INTENTS, open_minds_intents)                                                                \
    X(OPEN_IGNORES_TICKETS, open_ignores_tickets)                                                            \
    X(IGNORES_UNCHANGED, ignores_unchanged)                                                                  \
    X(CHECKS_THEN_WRITES, checks_then_writes)                                                                \
    X(HELD_BY_ACCEPTS_ANY_ID, held_by_accepts_any_id)                                                        \
    X(HELD_BY_ACCEPTS_WHO_HELD_LAST, held_by_accepts_who_held_last)                                          \
    X(HELD_BY_WANTS_A_LIVE_LEASE, held_by_wants_a_live_lease)                                                \
    X(LIVE_BY_IGNORES_EXPIRY, live_by_ignores_expiry)                                                        \
    X(LIVE_BY_HOLDS_AT_THE_END, live_by_holds_at_the_end)                                                    \
    X(IDS_IGNORE_CASE, ids_ignore_case)                                                                      \
    X(ACCEPTS_USED_IDS, accepts_used_ids)                                                                    \
    X(ASKS_FOR_USED_IDS_FIRST, asks_for_used_ids_first)                                                      \
    X(AN_ID_IS_USED_FOR_ALL_KEYS, an_id_is_used_for_all_keys)                                                \
    /* what a write does */                                                                                  \
    X(CREATES_ON_DROP, creates_on_drop)                                                                      \
    X(CREATES_ON_RELEASE, creates_on_release)                                                                \
    X(PUTS_CREATE_NOTHING, puts_create_nothing)                                                              \
    X(CLEARS_UNNAMED_METADATA, clears_unnamed_metadata)                                                      \
    X(LEASE_SETS_LIVENESS_TOO, lease_sets_liveness_too)                                                      \
    X(TTL_ZERO_IS_ZERO, ttl_zero_is_zero)                                                                    \
    X(LEASE_IN_WHOLE_SECONDS, lease_in_whole_seconds)                                                        \
    X(EVERY_OUTCOME_IS_COMPLETED, every_outcome_is_completed)                                                \
    X(KEEPS_32_METADATA, keeps_32_metadata)                                                                  \
    X(CUTS_LONG_TEXT, cuts_long_text)                                                                        \
    X(REPLACED_TICKET_GOES_TO_THE_END, replaced_ticket_goes_to_the_end)                                      \
    X(DROPS_ONE_TICKET_ONLY, drops_one_ticket_only)                                                          \
    X(DROPPING_NOTHING_IS_AN_ERROR, dropping_nothing_is_an_error)                                            \
    X(TAKING_CLEARS_THE_LINE, taking_clears_the_line)                                                        \
    X(TICKETS_FORGET_THE_OWNER, tickets_forget_the_owner)                                                    \
    X(DROPS_AFTER_IT_PUTS, drops_after_it_puts)                                                              \
    X(A_DROP_REACHES_THE_NEXT_KEY, a_drop_reaches_the_next_key)                                              \
    /* batches and their answers */                                                                          \
    X(DROPS_THE_SECOND_WRITE, drops_the_second_write)                                                        \
    X(APPLIES_THEN_REFUSES, applies_then_refuses)                                                            \
    X(REFUSES_AN_EMPTY_BATCH, refuses_an_empty_batch)                                                        \
    X(REFUSES_WITH_WRONG_INDEX, refuses_with_wrong_index)                                                    \
    X(REFUSES_WITHOUT_RECORD, refuses_without_record)                                                        \
    X(STALE_AFTER_IMAGE, stale_after_image)                                                                  \
    X(IMAGES_BACKWARDS, images_backwards)                                                                    \
    X(TOKEN_REPEATS, token_repeats)                                                                          \
    X(TOKEN_PER_HANDLE, token_per_handle)                                                                    \
    X(TOKEN_WITH_EVERY_WRITE, token_with_every_write)                                                        \
    X(REVISION_STAYS, revision_stays)                                                                        \
    X(CLOCK_GOES_BACK, clock_goes_back)                                                                      \
    X(CLOCK_STANDS_STILL, clock_stands_still)                                                                \
    /* several holders, several keys */                                                                      \
    X(ONE_OF_SEVERAL_ACCEPTS_ANY_ID, one_of_several_accepts_any_id)                                          \
    X(HELD_BY_ACCEPTS_ONE_OF_SEVERAL, held_by_accepts_one_of_several)                                        \
    X(ONE_HOLDER_LIVES_AS_LONG_AS_ANY, one_holder_lives_as_long_as_any)                                      \
    X(A_RELEASE_ENDS_ALL_HOLDERS, a_release_ends_all_holders)                                                \
    X(KEEPS_HOLDERS_THAT_ARE_DROPPED, keeps_holders_that_are_dropped)                                        \
    X(REPEATS_THE_FIRST_HOLDER, repeats_the_first_holder)                                                    \
    X(HOLDERS_BACKWARDS, holders_backwards)                                                                  \
    X(FORGETS_THE_SLOTS, forgets_the_slots)                                                                  \
    X(FORGETS_THE_LAST_RELEASES, forgets_the_last_releases)                                                  \
    X(ACCEPTS_A_CHANGE_OF_NO_HOLDER, accepts_a_change_of_no_holder)                                          \
    X(A_NEW_HOLDER_FREES_NOTHING, a_new_holder_frees_nothing)                                                \
    X(TICKETS_FORGET_THE_MODE, tickets_forget_the_mode)                                                      \
    X(INTENTS_FORGET_THAT_THEY_ARE_SHARED, intents_forget_that_they_are_shared)                              \
    X(EVENTS_ARE_ALL_OF_THE_FIRST_KEY, events_are_all_of_the_first_key)                                      \
    X(ONLY_THE_FIRST_KEY_HAS_USED_IDS, only_the_first_key_has_used_ids)                                      \
    /* freezes */                                                                                            \
    X(IGNORES_FREEZES, ignores_freezes)                                                                      \
    X(FREEZES_HINDER_HOLDERS, freezes_hinder_holders)                                                        \
    X(IGNORES_THE_GRACE, ignores_the_grace)                                                                  \
    X(DOES_NOT_SAY_WHAT_IS_FROZEN, does_not_say_what_is_frozen)                                              \
    X(ITEMS_IGNORE_THE_VERSION, items_ignore_the_version)                                                    \
    /* reading */                                                                                            \
    X(WHO_HOLDS_IT_GAVE_IT_BACK, who_holds_it_gave_it_back)                                                  \
    X(ABSENT_HAS_NO_KEY, absent_has_no_key)                                                                  \
    X(EMPTY_TEXT_IS_NULL, empty_text_is_null)                                                                \
    X(KEYS_IGNORE_CASE, keys_ignore_case)                                                                    \
    X(REMEMBERS_WHAT_IT_READ, remembers_what_it_read)                                                        \
    X(TICKETS_BACKWARDS, tickets_backwards)                                                                  \
    X(SCAN_IGNORES_AFTER, scan_ignores_after)                                                                \
    X(SCAN_IGNORES_HELD_ONLY, scan_ignores_held_only)                                                        \
    X(SCAN_GOES_ON, scan_goes_on)                                                                            \
    X(SCAN_STOPS_AT_A_THOUSAND, scan_stops_at_a_thousand)                                                    \
    X(SCAN_BACKWARDS, scan_backwards)                                                                        \
    X(PREFIX_IS_A_PATTERN, prefix_is_a_pattern)                                                              \
    /* events and waking */                                                                                  \
    X(FORGETS_EVENTS, forgets_events)                                                                        \
    X(EVENT_ON_REFUSAL, event_on_refusal)                                                                    \
    X(EVENTS_WITHOUT_THE_TOKEN, events_without_the_token)                                                    \
    X(EVENTS_WITHOUT_THE_DURATION, events_without_the_duration)                                              \
    X(EVENTS_WITHOUT_THE_METADATA, events_without_the_metadata)                                              \
    X(EVENTS_IGNORE_AFTER, events_ignore_after)                                                              \
    X(EVENTS_IGNORE_THE_KEY, events_ignore_the_key)                                                          \
    X(LAST_EVENTS_ARE_THE_FIRST, last_events_are_the_first)                                                  \
    X(EVENTS_GO_ON, events_go_on)                                                                            \
    X(HAS_ROOM_FOR_FEW_EVENTS, has_room_for_few_events)                                                      \
    X(LOST_WAKEUP, lost_wakeup)                                                                              \
    X(WAKES_NOBODY, wakes_nobody)                                                                            \
    X(EVENTS_WAKE_NOBODY, events_wake_nobody)                                                                \
    X(IGNORES_CANCELLING, ignores_cancelling)                                                                \
    X(WAITS_TOO_LONG, waits_too_long)                                                                        \
    X(CAPABILITIES_CHANGE, capabilities_change)

enum faulty_store_rule {
#define FAULTY_ENUM(upper, lower) FAULTY_##upper,
    FAULTY_RULES(FAULTY_ENUM)
#undef FAULTY_ENUM
        FAULTY_COUNT
};

const char *faulty_store_name(enum faulty_store_rule rule);

/* Takes over `inner` and closes it in the end. */
struct belay_store *faulty_store_new(struct belay_store *inner, enum faulty_store_rule rule);

#endif
