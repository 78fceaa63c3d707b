/* The protocol of docs/proxy-events.md, for Spin (https://spinroot.com).
 *
 *     spin -a -DLEADERS=1 -DCHANGES=2 -DFAULTS=2 -DLOST=1 docs/proxy-events.pml
 *     cc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan -m1000000 -n
 *
 * Actions have the names of the functions of shared/bus/publisher.py, of gateway/bus/follower.py and
 * of what the follower is made of; a test fails when the two lists differ. One session stands for
 * all: its route is a number that only rises in the store, and "shut" says whether its users were
 * shut out. Two controllers lead one after the other, and the first may go on as if nothing had
 * happened.
 *
 * Checked, for every interleaving of CHANGES changes, FAULTS faults and LOST answers:
 *   - equal epoch and seq mean equal content, of Redis and of a follower;
 *   - a follower never forgets that somebody was shut out;
 *   - a follower never goes back to an epoch that it left;
 *   - at rest, the follower and Redis hold what the store says.
 *
 * Searched whole, without an error: one leader, two changes, two faults and a lost answer (7.2
 * million states); two leaders, one change and one fault (7.2 million), and with a lost answer,
 * too (45 million, 2.5 GB). Searched in part, no error so far, which proves nothing: two leaders, two
 * changes, two faults and a lost answer (5 million, of which a few bits each were kept). `make test`
 * searches one leader, one change and one fault (27,000 states); `make test-long` the first two,
 * and the last for ten minutes.
 *
 * Messages are lost, doubled and late, but do not overtake each other; the simulation in
 * tests/protocol lets them. A follower that takes revocations back is found out at once.
 */

#ifndef CHANGES
#define CHANGES 2
#endif
#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef LOST
#define LOST 1
#endif
#ifndef LEADERS
#define LEADERS 2
#endif
#define MOST 8 /* events in an epoch */

mtype = { BEAT, ROUTE, REVOKED };
mtype = { OK, UNANSWERED, REFUSED, DEPOSED };

typedef Table {
    byte epoch; /* 0: missing */
    byte seq;
    byte term;
    byte build;
    byte server;
    byte route;
    bit shut;
    byte last;          /* whose the last event is: so a call that was not answered is known */
    byte log[MOST];     /* the route after each event */
    bit logged[MOST];   /* whether users were shut out after it */
};

/* What a follower knows. */
typedef Known {
    byte epoch;
    byte seq;
    byte term;
    byte build;
    byte route;
    bit shut;
};

/* The store */
byte store_route = 1;
bit store_shut;
byte store_term;

/* Redis, what a failover would go back to, and which process it is */
Table redis;
Table backup;
byte server = 1;

byte epochs;    /* how many there were: each gets a name of its own */
byte changes, faults, lost;
byte leaving;   /* leaders that have ended */
bit at_rest;

chan events = [2] of { mtype, byte, byte, byte, bit };

inline copy(from, to) {
    to.epoch = from.epoch; to.seq = from.seq; to.term = from.term; to.build = from.build;
    to.server = from.server; to.route = from.route; to.shut = from.shut; to.last = from.last;
    i = 0;
    do
    :: i < MOST -> to.log[i] = from.log[i]; to.logged[i] = from.logged[i]; i++
    :: else -> break
    od;
    i = 0
}

/* What nobody can read any more makes no difference between two states. */
inline drop(table) {
    table.epoch = 0; table.seq = 0; table.term = 0; table.build = 0; table.server = 0;
    table.route = 0; table.shut = 0; table.last = 0;
    i = 0;
    do
    :: i < MOST -> table.log[i] = 0; table.logged[i] = 0; i++
    :: else -> break
    od;
    i = 0
}

/* A message is lost, told, or told twice; late is whenever the follower comes to it. Heartbeats are
 * left out: a follower does no more for them than look at the head, which it may do at any time. */
inline announce(kind) {
    if
    :: skip
    :: nfull(events) -> events!kind(redis.epoch, redis.seq, redis.route, redis.shut)
    :: nfull(events) -> events!kind(redis.epoch, redis.seq, redis.route, redis.shut);
       if
       :: nfull(events) -> events!kind(redis.epoch, redis.seq, redis.route, redis.shut)
       :: full(events)
       fi
    fi
}

inline answered() {
    if
    :: answer = OK
    :: lost < LOST -> lost++; answer = UNANSWERED
    fi
}

/* The script PUBLISH. */
inline script(kind) {
    if
    :: redis.epoch == 0 -> answer = REFUSED
    :: redis.epoch != 0 && redis.term > my_term -> answer = DEPOSED
    :: redis.epoch != 0 && redis.term <= my_term &&
       (redis.epoch != my_epoch || redis.server != server) -> answer = REFUSED
    :: redis.epoch == my_epoch && redis.term <= my_term && redis.server == server ->
        if
        :: kind == BEAT && redis.seq == my_seq -> answered()
        :: kind != BEAT && redis.seq == my_seq + 1 && redis.last == my_term -> answered()
        :: kind != BEAT && redis.seq == my_seq ->
            redis.seq++; redis.last = my_term;
            if
            :: kind == ROUTE -> redis.route = my_route
            :: kind == REVOKED -> redis.shut = 1
            fi;
            assert(redis.seq < MOST);
            redis.log[redis.seq] = redis.route; redis.logged[redis.seq] = redis.shut;
            announce(kind);
            answered()
        :: else -> answer = REFUSED
        fi
    fi
}

inline learn() {
    if
    :: answer == OK && pending == ROUTE -> my_seq++; told_route = my_route; pending = BEAT
    :: answer == OK && pending == REVOKED -> my_seq++; told_shut = 1; pending = BEAT
    :: answer == OK && pending == BEAT -> skip
    :: answer == UNANSWERED -> unsure = (pending != BEAT)
    :: answer == REFUSED -> built = 0; unsure = 0; pending = BEAT
    :: answer == DEPOSED -> goto deposed
    fi;
    if
    :: pending == BEAT -> my_route = 0
    :: else
    fi;
    answer = OK
}

inline upsert() { my_route = store_route; pending = ROUTE; script(ROUTE); learn() }
inline remove() { my_route = store_route; pending = ROUTE; script(ROUTE); learn() }
inline revoke() { pending = REVOKED; script(REVOKED); learn() }
inline beat() { pending = BEAT; script(BEAT); learn() }
inline settle() { unsure = 0; script(pending); learn() }

/* Tells those who listen, and writes nothing: so it can come from any replica. */
inline notice() {
    if
    :: redis.epoch != 0 && redis.term <= store_term && nfull(events) ->
        events!REVOKED(redis.epoch, redis.seq, redis.route, 1)
    :: redis.epoch == 0 || redis.term > store_term || full(events)
    fi
}

inline rebuild() {
    atomic { !built -> my_route = store_route; my_shut = store_shut };
    /* filled in meanwhile, into keys of this epoch's own */
    atomic {
        if
        :: redis.epoch != 0 && redis.term > my_term -> goto deposed
        :: else ->
            epochs++; my_builds++;
            redis.epoch = epochs; redis.seq = 0; redis.term = my_term; redis.build = my_builds;
            redis.server = server; redis.route = my_route; redis.shut = my_shut; redis.last = 0;
            do
            :: i < MOST -> redis.log[i] = 0; redis.logged[i] = 0; i++
            :: else -> break
            od;
            i = 0;
            answered();
            if
            :: answer == OK ->
                my_epoch = redis.epoch; my_seq = 0; built = 1; unsure = 0; pending = BEAT;
                told_route = my_route; told_shut = my_shut
            :: else
            fi;
            my_route = 0; my_shut = 0; answer = OK
        fi
    }
}

proctype Leader() {
    byte my_term, my_epoch, my_seq, my_builds, my_route, told_route, i;
    bit my_shut, told_shut, built, unsure;
    mtype pending = BEAT;
    mtype answer = OK;
    atomic { store_term++; my_term = store_term };
    do
    :: rebuild()
    :: atomic { built && unsure -> settle() }
    :: atomic { built && !unsure && store_shut && !told_shut -> revoke() }
    :: atomic { built && !unsure && told_route != store_route -> upsert() }
    :: atomic { built && !unsure && told_route != store_route -> remove() }
    :: atomic { built && !unsure -> beat() }
    /* It ends when nothing can happen any more, and what it said last was right. */
    :: atomic { built && !unsure && told_route == store_route && told_shut == store_shut &&
        changes == CHANGES && faults == FAULTS && store_term == LEADERS &&
        my_term == LEADERS && redis.epoch == my_epoch && redis.seq == my_seq &&
        redis.server == server -> break }
    :: atomic { my_term < store_term -> break }
    od;
deposed:
    leaving++
}

/* What the controller is asked for. */
active proctype World() {
    do
    :: atomic { changes < CHANGES -> changes++; store_route++ }
    :: atomic { changes < CHANGES && !store_shut -> changes++; store_shut = 1 };
        if
        :: atomic { notice() }
        :: skip
        fi
    :: changes == CHANGES -> break
    od
}

/* Only the last copy before going back matters; to go back to it again is to copy it again. */
inline go_back() {
    copy(backup, redis); drop(backup); backed = 0
}

active proctype Faults() {
    byte i;
    bit backed;
    do
    :: atomic { faults < FAULTS -> faults++; drop(redis) } /* flushed, or back empty */
    :: atomic { faults < FAULTS && !backed -> copy(redis, backup); backed = 1 }
    :: atomic { faults < FAULTS -> faults++; go_back(); server++ } /* failed over */
    :: atomic { faults < FAULTS -> faults++; go_back() } /* restored */
    :: atomic { faults == FAULTS -> drop(backup); backed = 0; break }
    od
}

#define older() (f.epoch != 0 && ((head_epoch == f.epoch && head_seq < f.seq) || \
    (head_epoch != f.epoch && (head_term < f.term || \
        (head_term == f.term && head_build < f.build)))))

/* What is not needed any more makes no difference between two states. */
inline forget() {
    head_epoch = 0; head_seq = 0; head_term = 0; head_build = 0
}

inline holds() {
    assert(!(f.epoch == redis.epoch && f.epoch != 0 && f.seq == redis.seq) || f.route == redis.route);
    assert(!was_shut || f.shut);
    was_shut = f.shut
}

/* An event: the next one is applied; a revocation counts wherever in the order it stands. */
inline take() {
    events?kind(epoch, seq, route, shut);
    _revoke();
    advance_by();
    holds();
    kind = BEAT; epoch = 0; seq = 0; route = 0; shut = 0
}

inline _revoke() {
    if
    :: epoch == f.epoch && kind == REVOKED -> f.shut = 1
    :: else
    fi
}

inline advance_by() {
    if
    :: epoch == f.epoch && kind != BEAT && seq == f.seq + 1 -> f.seq = seq; f.route = route
    :: else /* the head will say */
    fi
}

inline _fetch_head() {
    head_epoch = redis.epoch; head_seq = redis.seq; head_term = redis.term;
    head_build = redis.build;
    behind = head_epoch != 0 && !older() && (head_epoch != f.epoch || head_seq > f.seq);
    forget()
}

inline _read_log() {
    if
    :: redis.epoch == f.epoch && redis.seq > f.seq ->
        do
        :: f.seq < redis.seq ->
            f.seq++; f.route = redis.log[f.seq]; f.shut = f.shut || redis.logged[f.seq]
        :: else -> break
        od;
        behind = 0
    :: else
    fi;
    holds()
}

inline _exchange() {
    head_epoch = redis.epoch; head_seq = redis.seq; head_term = redis.term;
    head_build = redis.build;
    adopt();
    behind = 0;
    forget();
    holds()
}

/* The better table is taken, with all that the one before knew to be revoked. A fresh follower takes
 * one only from the process on which it began: another one may have forgotten what was withdrawn. */
inline adopt() {
    if
    :: head_epoch != 0 && !older() && (f.epoch != 0 || redis.server == server) ->
        assert(head_epoch == f.epoch || head_term > f.term ||
            (head_term == f.term && head_build > f.build));
        f.epoch = redis.epoch; f.seq = redis.seq; f.term = redis.term; f.build = redis.build;
        f.route = redis.route; f.shut = f.shut || redis.shut
    :: else
    fi
}

/* Subscribed: what was under way is lost. To do so anew is to lose messages, as they are anyway. */
inline _listen() {
    do
    :: nempty(events) -> events?kind(epoch, seq, route, shut)
    :: empty(events) -> break
    od;
    kind = BEAT; epoch = 0; seq = 0; route = 0; shut = 0
}

active proctype Follower() {
    Known f;
    byte epoch, seq, route, head_epoch, head_seq, head_term, head_build;
    bit shut, was_shut, behind;
    mtype kind;
    atomic { _listen() };
    do
    :: atomic { nempty(events) -> take() }
    :: atomic { !behind -> _fetch_head() }
    :: atomic { behind -> _read_log() }
    :: atomic { behind -> _exchange() }
    :: atomic { leaving == LEADERS && empty(events) && changes == CHANGES && faults == FAULTS ->
        _fetch_head();
        if
        :: behind -> _exchange()
        :: else
        fi;
        assert(f.route == store_route && redis.route == store_route);
        assert(f.shut == store_shut && redis.shut == store_shut);
        at_rest = 1;
        break }
    od
}

init {
    byte leader;
    atomic {
        do
        :: leader < LEADERS -> leader++; run Leader()
        :: else -> break
        od
    }
}
