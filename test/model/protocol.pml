/*
 * The protocol of one key: three callers, an operator who forgets the record, a sweeper that removes
 * it or abandons its claim, and the clock that ends leases. README.md says what is modelled.
 * Functions named in comments are in src/claim/. Actions of the server have PostgreSQL's names.
 *
 * Macros choose the configuration
 *   SQL_STORE   idempotency.store = sql: idem_begin writes the row, looks see committed rows only,
 *               the lock is kept until the transaction ends. Without it: the heap store.
 *   TURNS       how many transactions may ask for the key, of all callers together
 *   ACTS        how many of these may remove the record or decide first, or release their claim
 *   PROPERTIES  which properties are looked at, a sum of the numbers below
 * and plant a mistake, which is described at its #if
 *   NO_SECOND_LOOK, EARLY_UNLOCK, UNLOCK_IN_SAVEPOINT, CLEAN_LOOK, NO_TOKEN_TEST, NO_LOCK_BY_TOKEN,
 *   NO_SNAPSHOT_TEST, SNAPSHOT_TEST_BEFORE_LOCK, SNAPSHOT_TEST_IGNORES_DEAD,
 *   NO_LEASE_TEST_OF_SNAPSHOT, HOLD_SHORTENS_LEASE, GIVE_UP_WITHOUT_LOCK, GIVE_UP_BY_FIRST_LOOK,
 *   REMOVER_UNSEEN, FORGOTTEN_IS_INHERITED, OWN_DECISION_HIDES_LEASE, RELEASE_WITHOUT_VERSION
 */

#define ONCE      1 /* at most one effect is committed in a generation of the key */
#define FENCE     2 /* nothing is committed under a token older than the newest grant */
#define SIGHT     4 /* an execution sees every effect of the attempts before */
#define EXCLUSIVE 8 /* a key that is taken or answered is neither granted nor abandoned */
#define FORGOTTEN 16 /* no claim inherits from a record that was removed before it was written */

#ifndef PROPERTIES
#define PROPERTIES (ONCE + FENCE + SIGHT + EXCLUSIVE + FORGOTTEN)
#endif
#ifndef TURNS
#define TURNS 3
#endif
#if defined(REMOVER_UNSEEN) /* else a caller that removes and one that waits for it block each other */
#define ACTS 0
#elif !defined(ACTS)
#define ACTS 1
#endif

#define CALLERS  3
#define OPERATOR 3
#define NOBODY   4

mtype = { absent, in_progress, retryable, completed };

/* ---- The database ---- */

/* The row of the key, as a new snapshot shows it. A generation begins where there is no row. */
mtype status = absent;
byte token;       /* of the last grant that was committed; later ones exceed it, row or no row */
bool lease_lives; /* now < lease_until */
bool holder_gone; /* the session that made the claim with `hold` has ended */
bool no_takeover; /* a sweeper has found that the result of the claim is unknown */
bool effect;      /* an effect of this generation is committed */

/* The version that a transaction has written over it and not committed. */
byte writer = NOBODY;
mtype written = absent;

/* The advisory lock of the key. */
byte lock = NOBODY;

/* A caller's snapshot, and the commits of others after it. */
bool has_snapshot[CALLERS];
bool row_is_newer[CALLERS];    /* a version of the row was made, or removed */
bool lease_was_alive[CALLERS]; /* the lease of the row ended only then */
bool effect_unseen[CALLERS];

/* ---- The model's own ---- */

byte turns = TURNS;
byte acts = ACTS;
byte arrived;   /* callers are alike, so they come in order: fewer histories, the same cases */
byte executing; /* transactions with a claim in memory */

#define must(property, violated, condition) \
    if \
    :: (PROPERTIES & property) == 0 || (condition) \
    :: else -> printf(violated); assert(false) \
    fi

/* Called for every commit: it is newer than the snapshots of the others. */
#define outdate(news, by) \
    news[0] = news[0] || (has_snapshot[0] && by != 0); \
    news[1] = news[1] || (has_snapshot[1] && by != 1); \
    news[2] = news[2] || (has_snapshot[2] && by != 2)

inline drop_snapshot(by) {
    has_snapshot[by] = false;
    row_is_newer[by] = false;
    lease_was_alive[by] = false;
    effect_unseen[by] = false
}

/* ---- Looks: judge() and core::decide() ---- */

/* A transaction sees its own decisions. */
#define MINE (writer == me)
#define REPLAY (!MINE && status == completed)
#define LEASE_LIVES (status == in_progress && lease_lives)
/* The end of a session with `hold` frees the key early, but not for a caller with a fixed snapshot. */
#ifdef HOLD_SHORTENS_LEASE /* for every caller */
#define LEASED (!MINE && LEASE_LIVES && !holder_gone)
#else
#define LEASED (!MINE && LEASE_LIVES && (!holder_gone || fixed))
#endif

/* A claim abandoned as unknown is granted to no caller. Its holder may still end it, or prolong its lease. */
#define UNKNOWN (!MINE && status == in_progress && no_takeover && !LEASED)

/* A dirty look meets an uncommitted version, and an uncommitted removal. */
#if defined(SQL_STORE) || defined(CLEAN_LOOK) /* CLEAN_LOOK: the heap store looks like the other */
#define WRITER_SEEN false
#elif defined(REMOVER_UNSEEN) /* it meets inserters only */
#define WRITER_SEEN (writer != NOBODY && writer != me && written != absent)
#else
#define WRITER_SEEN (writer != NOBODY && writer != me)
#endif

#define MAY_GRANT (!REPLAY && !LEASED && !UNKNOWN && !WRITER_SEEN)

/* ---- The rule for a grant under a fixed snapshot ---- */

/* A version of the key was made or removed after the snapshot, by another transaction. */
#if defined(NO_SNAPSHOT_TEST)
#define VERSION_TOO_NEW false
#elif defined(SNAPSHOT_TEST_IGNORES_DEAD) /* asks the row that is there, and no dead version */
#define VERSION_TOO_NEW (row_is_newer[me] && status != absent)
#elif defined(SNAPSHOT_TEST_BEFORE_LOCK) /* is made with the unlocked look, not at the grant */
#define VERSION_TOO_NEW too_new
#else
#define VERSION_TOO_NEW row_is_newer[me]
#endif

/* A takeover: the snapshot was taken before lease_until. */
#if defined(NO_LEASE_TEST_OF_SNAPSHOT) || defined(NO_SNAPSHOT_TEST)
#define LEASE_TOO_NEW false
#else
#define LEASE_TOO_NEW (MINE -> outlived : status == in_progress && lease_was_alive[me])
#endif

/* ... the same for a claim that the transaction itself has ended: its lease is remembered. */
#ifdef OWN_DECISION_HIDES_LEASE
#define OUTLIVED false
#else
#define OUTLIVED (status == in_progress && (lease_lives || lease_was_alive[me]))
#endif

/* ---- Transactions ---- */

inline effect_becomes_visible(me, did) {
    if
    :: did ->
        must(ONCE, "once: a second effect in this generation\n", !effect);
        effect = true;
        outdate(effect_unseen, me)
    :: else
    fi
}

/* The transaction becomes visible: effects and row at one moment, its locks are released later. */
inline become_visible(me, did, new_token) {
    effect_becomes_visible(me, did);
    if
    :: writer == me ->
        status = written;
        token = new_token;
        lease_lives = (written == in_progress);
        no_takeover = no_takeover && written == in_progress;
        lease_was_alive[0] = false;
        lease_was_alive[1] = false;
        lease_was_alive[2] = false;
        holder_gone = false;
        writer = NOBODY;
        written = absent;
        outdate(row_is_newer, me)
    :: else
    fi
}

/* The record's contents are gone, and with them the generation. */
inline record_goes() {
    status = absent;
    lease_lives = false;
    holder_gone = false;
    no_takeover = false;
    effect = false
}

inline undo(me) {
    if
    :: writer == me -> writer = NOBODY; written = absent
    :: else
    fi
}

inline unlock(me) {
    if
    :: lock == me -> lock = NOBODY
    :: else
    fi
}

/* ---- A caller ---- */

/* The transaction has ended, with its locks; its effects and row have been committed or undone. */
inline end_transaction() {
    unlock(me);
    drop_snapshot(me);
    fixed = false;
    worked = false;
    did = false;
    early = false;
    nested = false;
    decided = 0;
    outlived = false;
    replaced = absent;
    replaced_token = 0
}

inline roll_back() {
    if
    :: granted -> executing--; granted = false
    :: else
    fi;
    undo(me);
    end_transaction();
    claim = 0
}

/* store::raise_claim_overtaken() */
inline overtaken() {
    printf("caller %d: claim overtaken\n", me);
    roll_back();
    goto idle
}

/* raise_claim_lost() */
inline claim_lost() {
    printf("caller %d: claim lost\n", me);
    roll_back();
    goto idle
}

/* turn_without_grant(): an answer that ends the transaction, or a wait without a limit: a wait that
 * expires equals an answer at once. */
inline refused() {
    if
    :: REPLAY -> printf("caller %d: replay\n", me); roll_back(); goto idle
    :: UNKNOWN -> printf("caller %d: unknown\n", me); roll_back(); goto idle
    :: !REPLAY && !UNKNOWN -> printf("caller %d: in_progress\n", me); roll_back(); goto idle
    :: !REPLAY && !UNKNOWN -> printf("caller %d waits\n", me); goto wait
    fi
}

/* In the SQL store the writer also has the lock. */
#define FREE (lock == NOBODY || lock == me)

/* A decision about the committed row, under the key's lock. A decision that would wait comes later. */
#define MAY_ACT (acts > 0 && lock == NOBODY && writer == NOBODY)

inline decide_that(outcome) {
    acts--;
    outlived = OUTLIVED;
    writer = me;
    written = outcome;
    decided = outcome;
#ifdef SQL_STORE
    lock = me; /* the heap store gives it back at once: the row is written */
#endif
    printf("caller %d decides: %e\n", me, written);
    goto look
}

proctype Caller(byte me) {
    bool fixed;   /* REPEATABLE READ, SERIALIZABLE, or claim and work in one statement */
    bool granted; /* has a claim in memory */
    bool worked;
    bool did;     /* the work has made an effect, as it saw none */
    bool early;   /* the claim's row was written before the claim has ended */
    bool nested;  /* it was ended in a savepoint */
    bool open;    /* it was not ended, so its holder has a lease now */
    mtype decided = 0; /* what the transaction has made of the record before its claim, if anything */
    bool outlived;     /* it has ended a claim whose lease ended after its snapshot, if at all */
    mtype replaced = absent; /* the version that the claim replaces: its status */
    byte replaced_token;     /* and its token */
    byte claim;   /* token of the claim, in memory or committed; 0: none */
#ifdef SNAPSHOT_TEST_BEFORE_LOCK
    bool too_new;
#endif
#ifdef FORGOTTEN_IS_INHERITED
    bool inherits; /* the claim has the data of the record that the unlocked look has met */
#endif

idle: /* A request arrives, or is sent again; a transaction begins. */
    atomic {
        if
        :: arrived >= me && turns > 0 ->
            turns--;
            if
            :: arrived == me -> arrived++
            :: else
            fi
        :: turns == 0 -> goto done
        fi;
        if
        /* The snapshot may be older than idem_begin: an earlier statement took it. */
        :: printf("caller %d begins, with a fixed snapshot\n", me);
            fixed = true;
            has_snapshot[me] = true
        :: printf("caller %d begins\n", me)
        fi
    }

look: /* unlocked_turn() */
    atomic {
#ifdef SNAPSHOT_TEST_BEFORE_LOCK
        too_new = row_is_newer[me];
#endif
#ifdef NO_SECOND_LOOK
        replaced = status;
        replaced_token = token;
#endif
#ifdef FORGOTTEN_IS_INHERITED
        inherits = !MINE && status == retryable;
#endif
        if
        :: FREE -> lock = me; goto decide /* who has executed last does not look first */
        :: MAY_ACT && status != absent && !(LEASE_LIVES && !holder_gone) -> /* idem_forget() */
            decide_that(absent)
        :: MAY_ACT && status == in_progress && !lease_lives -> /* idem_resolve(), 'release' */
            decide_that(retryable)
        :: MINE -> goto acted /* COMMIT, without a claim */
        :: MAY_GRANT
        :: !MAY_GRANT && WRITER_SEEN -> /* and moves the row to another page: it is missed */
#ifdef NO_SECOND_LOOK
            replaced = absent;
            replaced_token = 0
#endif
        :: !MAY_GRANT -> refused()
        fi
    }

    atomic { /* try_lock() */
        if
        :: FREE -> lock = me; goto decide
        :: else
        fi
    }

    atomic { /* Whoever has the lock may have just committed. */
        if
        :: MAY_GRANT -> printf("caller %d: in_progress\n", me); roll_back(); goto idle
        :: MAY_GRANT -> printf("caller %d waits for the lock\n", me); goto wait_for_lock
        :: else -> refused()
        fi
    }

wait: /* wait_for_writer(), wait_for_lease() */
    atomic { !LEASED && !WRITER_SEEN; goto look }

wait_for_lock:
    atomic { lock == NOBODY; lock = me; goto decide }

decide: /* locked_turn() and grant(). What they see does not change under the lock, so they are one
         * step. */
    atomic {
        if
#ifdef NO_SECOND_LOOK /* the unlocked look decides */
        :: true ->
#else
        :: !MAY_GRANT -> unlock(me); refused()
        :: MAY_GRANT ->
            replaced = (MINE -> written : status);
            replaced_token = token;
#endif
            claim = token + 1;
            if
            :: fixed && (VERSION_TOO_NEW || LEASE_TOO_NEW) ->
                printf("caller %d: 40001\n", me);
                roll_back();
                goto idle
            :: else
            fi;
            printf("caller %d: execute, token %d\n", me, claim);
            must(EXCLUSIVE, "exclusive: granted what another is executing\n", executing == 0);
            must(EXCLUSIVE, "exclusive: granted during a lease, or after the answer\n",
                 !LEASED && !REPLAY);
            must(SIGHT, "sight: the snapshot lacks an effect of an earlier attempt\n",
                 !effect_unseen[me]);
#ifdef FORGOTTEN_IS_INHERITED
            must(FORGOTTEN, "forgotten: inherited from a record that is gone\n",
                 !inherits || replaced != absent);
#endif
            executing++;
            granted = true;
            outlived = false;
            fixed = false; /* it has served */
            row_is_newer[me] = false;
            lease_was_alive[me] = false;
#ifdef EARLY_UNLOCK /* the lock is given back before there is a row to guard the key */
            unlock(me);
#endif
#ifndef SQL_STORE
            goto execute
#endif
        :: printf("caller %d crashes\n", me); roll_back(); goto idle
        fi
    }

/* Else the server waits for that transaction. */
#define MAY_WRITE (writer == NOBODY || writer == me)
#define AS_EXPECTED (writer == me || status == absent || \
                     (status == replaced && token == replaced_token))

/* If no row is left a new one is written, with the values inherited from the old one. */
#define not_forgotten() \
    must(FORGOTTEN, "forgotten: the claim brings back what was removed\n", \
         MINE || status != absent || replaced == absent)

/* A release without an effect equals a rollback of the claim. A takeover that is released after an
 * effect is not modelled: its old holder could still come. */
#define MAY_RELEASE (acts > 0 && did && decided == 0 && !nested && replaced != in_progress)
#ifdef RELEASE_WITHOUT_VERSION
#define LEAVES_VERSION early
#else
#define LEAVES_VERSION true
#endif

#ifdef SQL_STORE
    atomic { /* write_claim(), still in idem_begin */
        if
        :: MAY_WRITE && AS_EXPECTED ->
            not_forgotten();
            writer = me; written = in_progress; early = true;
            goto execute
        :: MAY_WRITE && !AS_EXPECTED -> overtaken()
        :: printf("caller %d crashes\n", me); roll_back(); goto idle
        fi
    }
#endif

execute: /* The claim is open; write_claim() waits for the row's writer. */
    atomic {
        if
        :: !worked -> /* "insert unless there is one": what it does depends on what it sees */
            did = decided == absent || !effect || effect_unseen[me];
            worked = true;
            has_snapshot[me] = true;
            printf("caller %d works: makes an effect %d\n", me, did);
            goto execute
        :: !early && MAY_WRITE && AS_EXPECTED -> /* idem_checkpoint */
            not_forgotten();
            writer = me; written = in_progress; early = true;
            printf("caller %d: checkpoint\n", me);
            goto execute
        :: worked && MAY_WRITE && AS_EXPECTED -> /* idem_complete: save_ended() */
            not_forgotten();
            writer = me; written = completed;
            printf("caller %d: complete\n", me);
            goto end_claim
        :: MAY_WRITE && AS_EXPECTED -> /* idem_fail */
            not_forgotten();
            writer = me; written = retryable;
            printf("caller %d: fail, retryable\n", me);
            goto end_claim
        :: MAY_WRITE && AS_EXPECTED -> /* COMMIT: write_open_claims() */
            not_forgotten();
            writer = me; written = in_progress;
            goto commit
        :: MAY_RELEASE && MAY_WRITE && AS_EXPECTED -> /* idem_release: back to what was replaced */
            printf("caller %d releases its claim\n", me);
            acts--;
            executing--;
            granted = false;
            if
            :: LEAVES_VERSION -> writer = me; written = replaced /* written, and undone again */
            :: else
            fi;
#ifndef SQL_STORE
            unlock(me);
#endif
            goto released
        :: MAY_WRITE && !AS_EXPECTED -> overtaken()
        :: printf("caller %d crashes\n", me); roll_back(); goto idle
        fi
    }

end_claim: /* unlock_written_claim() */
    atomic {
        if
        :: decided == 0 -> nested = true
        :: nested = false
        fi;
#ifndef SQL_STORE
        if
#ifdef UNLOCK_IN_SAVEPOINT /* also where a rollback to a savepoint takes back the row alone */
        :: true -> unlock(me)
#else
        :: !nested -> unlock(me)
        :: else
#endif
        fi;
#endif
        goto ended
    }

ended:
    atomic {
        if
        :: goto commit
        :: nested -> /* ROLLBACK TO: claims_subabort() */
            nested = false;
            if
            :: early -> written = in_progress
            :: else -> undo(me)
            fi;
            printf("caller %d: rollback to the savepoint\n", me);
            goto execute
        :: printf("caller %d crashes\n", me); roll_back(); goto idle
        fi
    }

commit:
    atomic {
        printf("caller %d commits: %e\n", me, written);
        must(FENCE, "fence: committed under a token that is not the newest\n", claim > token);
        must(SIGHT, "sight: an effect came while it was executing\n", !effect_unseen[me]);
        open = (written == in_progress);
        if
        :: decided != 0 -> no_takeover = false
        :: else
        fi;
        if
        :: decided == absent -> effect = false
        :: else
        fi;
        become_visible(me, did, claim);
        executing--;
        granted = false;
        goto committed
    }

acted:
    atomic {
        if
        :: printf("caller %d commits its decision\n", me);
            if
            :: decided == absent -> undo(me); record_goes(); outdate(row_is_newer, me)
            :: else -> become_visible(me, false, token + 1) /* the old holder's dies */
            fi
        :: printf("caller %d crashes\n", me); undo(me)
        fi
    }
    atomic { end_transaction(); goto idle }

released:
    atomic {
        if
        :: printf("caller %d commits what it did without its claim, an effect %d\n", me, did);
            effect_becomes_visible(me, did);
            if
            :: MINE -> undo(me); outdate(row_is_newer, me) /* the row is as it was */
            :: else
            fi
        :: printf("caller %d crashes\n", me); undo(me)
        fi;
        claim = 0
    }
    atomic { end_transaction(); goto idle }

committed:
    atomic {
        end_transaction();
        if
        :: open -> open = false; goto hold_lease
        :: else -> claim = 0; goto idle
        fi
    }

    /* ---- The holder of a lease, by token ---- */

hold_lease:
    atomic {
        if
        :: LEASE_LIVES && token == claim && !effect ->
            printf("caller %d commits an effect by itself, while its lease lives\n", me);
            become_visible(me, true, claim);
            goto hold_lease
        :: did = !effect; /* as above; then idem_complete, idem_fail or idem_checkpoint */
            goto lock_and_find
        :: did = false; goto lock_and_find
        :: LEASE_LIVES && token == claim ->
            printf("caller %d vanishes, and its claim was made with hold\n", me);
            holder_gone = true;
            claim = 0;
            goto idle
        :: printf("caller %d vanishes\n", me);
            claim = 0;
            goto idle
        fi
    }

wait_for_writer: /* lock_and_find() waits without the lock */
    atomic { !WRITER_SEEN; goto lock_and_find }

lock_and_find: /* committed_claim() */
    atomic {
#ifndef NO_LOCK_BY_TOKEN /* the row alone is compared */
        lock == NOBODY;
#endif
        if
        :: WRITER_SEEN -> goto wait_for_writer
        :: else
        fi;
#ifndef NO_LOCK_BY_TOKEN
        lock = me;
#endif
#ifdef NO_TOKEN_TEST /* any claim in progress will do */
        replaced_token = token;
#else
        replaced_token = claim;
#endif
        if
        :: status == in_progress && token == replaced_token
        :: else -> claim_lost()
        fi
    }

    atomic { /* save(), save_ended() */
        MAY_WRITE;
        if
        :: status == in_progress && token == replaced_token
        :: else -> overtaken()
        fi;
        if
        :: written = completed
        :: written = retryable
        :: written = in_progress /* idem_checkpoint, idem_extend */
        fi;
        writer = me;
        printf("caller %d by token %d: %e, makes an effect %d\n", me, claim, written, did);
#ifndef SQL_STORE
        if
        :: written != in_progress -> unlock(me)
        :: else
        fi
#endif
    }

ended_by_token:
    atomic {
        if
        :: printf("caller %d commits: %e\n", me, written);
            must(FENCE, "fence: written under an older token than the newest\n",
                 status == in_progress && token == claim);
            if
            :: written != in_progress -> claim = 0
            :: else
            fi;
            become_visible(me, did, token)
        :: printf("caller %d rolls back\n", me);
            undo(me)
        fi;
        did = false;
        replaced_token = 0
    }

    atomic {
        unlock(me);
        if
        :: claim == 0 -> goto idle
        :: else -> goto hold_lease
        fi
    }

done:
    skip
}

/* ---- idem_forget(), and the sweeper: it takes no lock to remove a row, and that of the key to
 * abandon a claim; once ---- */

#ifdef GIVE_UP_WITHOUT_LOCK /* only the row tells whether the key is in use */
#define FREE_TO_GIVE_UP true
#else
#define FREE_TO_GIVE_UP (lock == NOBODY)
#endif
#ifdef GIVE_UP_BY_FIRST_LOOK /* whether the lease is over is not asked again */
#define STILL_OVERDUE (status == in_progress)
#else
#define STILL_OVERDUE (status == in_progress && !lease_lives)
#endif

proctype Operator(byte me) {
end_nobody_comes:
    atomic {
        if
        :: status == completed && writer == NOBODY -> /* remove_expired() */
            status = absent;
            effect = false;
            outdate(row_is_newer, me);
            printf("the sweeper removes the row\n");
            goto done
        :: lock == NOBODY && writer == NOBODY && status != absent &&
           !(LEASE_LIVES && !holder_gone) ->
#ifdef SQL_STORE
            lock = me; /* the heap store gives it back at once */
#endif
            writer = me;
            printf("the operator removes the row\n")
        :: status == in_progress && !lease_lives && !no_takeover -> /* find_overdue() */
            goto overdue
        fi
    }
    atomic {
        if
        :: printf("the operator commits\n");
            record_goes();
            outdate(row_is_newer, me)
        :: printf("the operator rolls back\n")
        fi;
        undo(me)
    }
    unlock(me);
    goto done;

overdue: /* abandon_one(): the lock is tried, and what was found before is asked again under it */
    atomic {
        if
        :: FREE_TO_GIVE_UP && STILL_OVERDUE && !WRITER_SEEN && MAY_WRITE
        :: else -> printf("the sweeper passes over the claim\n"); goto end_nobody_comes
        fi;
        must(EXCLUSIVE, "exclusive: gave up what a transaction is executing\n", executing == 0);
        must(EXCLUSIVE, "exclusive: gave up a claim that lives\n", !LEASE_LIVES);
#ifdef SQL_STORE
        lock = me;
#endif
        writer = me;
        if
        :: written = completed /* on_abandon => 'fail': final like an answer, and without effect */
        :: written = retryable
        :: written = in_progress /* 'unknown' */
        fi
    }
    atomic {
        if
        :: printf("the sweeper gives the claim up: %e\n", written);
            if
            :: written == in_progress ->
                become_visible(me, false, token);
                lease_lives = false;
                no_takeover = true
            :: else -> become_visible(me, false, token + 1) /* the old holder's dies */
            fi
        :: printf("the sweeper rolls back\n");
            undo(me)
        fi
    }
    unlock(me);
done:
    skip
}

proctype Clock() {
end_clock:
    do
    :: atomic {
        LEASE_LIVES ->
            lease_lives = false;
            holder_gone = false;
            outdate(lease_was_alive, NOBODY);
            printf("the lease is over\n")
       }
    od
}

init {
    atomic {
        run Caller(0);
        run Caller(1);
        run Caller(2);
        run Operator(OPERATOR);
        run Clock()
    }
}
