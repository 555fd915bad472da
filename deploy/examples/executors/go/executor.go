// An executor in Go: reads what the reconciler has decided, carries moves out over files, and says so.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// So many moves are carried out at once. A copy is given up after pauses of about 1, 2 and 4 s, a
// deletion never is.
const movesMax, attemptsMax, deletionPause = 4, 4, 5 * time.Second

var open, calledOff = []MoveState{Issued, Accepted}, []MoveState{Cancelled, Superseded, Expired}

// shard is what is known of one. What to do follows from it, in whatever order records came.
type shard struct {
	sync.Mutex                  // of its data: one thing is done at a time
	key        string           // STREAM/N
	assignment *Assignment      // without an epoch after a tombstone; nil: nothing is known yet
	moves      map[string]*Move // the last record of each
	answered   map[string]*Move // the record of each that was answered last
	fresh      []string         // nodes that are to make an empty replica
	failures   int              // of the move that is carried out
	retryAt    time.Time
}

// executor holds what is known of all; its own lock is free while data is copied.
type executor struct {
	sync.Mutex
	store    store
	shards   map[string]*shard
	shardOf  map[string]*shard // by move
	carrying int               // moves that are carried out
	hasBegun bool              // all that was on the topics at the start is read
	client   *kgo.Client
}

func main() {
	ctx, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	prefix := os.Getenv("TOPIC_PREFIX")
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(os.Getenv("KAFKA_BOOTSTRAP"), ",")...),
		kgo.ConsumeTopics(prefix+"moves.v1", prefix+"assignments.v1"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), // at every start, without a group
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // a topic ends with the marker of a transaction
		kgo.DefaultProduceTopic(prefix+"acks.v1"),
	)
	if err == nil {
		e := executor{client: client, store: store(os.Getenv("STORE")), shards: map[string]*shard{}, shardOf: map[string]*shard{}}
		err = e.follow(ctx, prefix+"moves.v1", prefix+"assignments.v1")
		client.Flush(context.Background()) // nothing else is said: follow has kept the lock
	}
	if ctx.Err() == nil {
		log.Fatal(err)
	}
}

// follow reads records until the context ends. It has the lock except while it waits for them.
func (e *executor) follow(ctx context.Context, moves, assignments string) error {
	ends, err := kadm.NewClient(e.client).ListCommittedOffsets(ctx, moves, assignments)
	see := map[string]func(key string, value []byte) error{moves: e.seeMove, assignments: e.seeAssignment}
	unread := ends.Offsets() // where the topics end now
	unread.KeepFunc(func(o kadm.Offset) bool { return o.At > 0 })
	e.Lock()
	for err = cmp.Or(err, ends.Error()); err == nil; {
		if !e.hasBegun && len(unread) == 0 {
			e.hasBegun = true
			for _, s := range e.shards {
				e.wake(s, 0)
			}
		}
		e.Unlock()
		fetches := e.client.PollFetches(ctx)
		e.Lock()
		for r := range fetches.RecordsAll() {
			if end, ok := unread.Lookup(r.Topic, r.Partition); ok && r.Offset+1 >= end.At {
				unread.Delete(r.Topic, r.Partition)
			}
			if r.Attrs.IsControl() {
				continue
			} else if err := see[r.Topic](string(r.Key), r.Value); err != nil {
				log.Printf("%s partition %d offset %d is left out: %v", r.Topic, r.Partition, r.Offset, err)
			}
		}
		err = fetches.Err() // none that a broker's return would heal
	}
	return err
}

func (e *executor) find(key string) *shard {
	e.shards[key] = cmp.Or(e.shards[key], &shard{key: key, moves: map[string]*Move{}, answered: map[string]*Move{}})
	return e.shards[key]
}

func (e *executor) seeMove(id string, value []byte) error {
	s, m := cmp.Or(e.shardOf[id], &shard{}), &Move{}
	if value == nil { // a tombstone: it ended a while ago
		delete(s.moves, id)
		delete(s.answered, id)
		delete(e.shardOf, id)
		return nil
	} else if err := json.Unmarshal(value, m); err != nil {
		return err
	}
	s = e.find(fmt.Sprintf("%s/%d", m.Stream, m.Shard))
	s.moves[id], e.shardOf[id] = m, s
	e.wake(s, 0)
	return nil
}

func (e *executor) seeAssignment(key string, value []byte) error {
	s, a := e.find(key), &Assignment{}
	before := cmp.Or(s.assignment, &Assignment{})
	if value != nil { // else a tombstone: the stream was dropped
		if err := json.Unmarshal(value, a); err != nil || a.Epoch <= before.Epoch {
			return err // an epoch that was passed is old news
		}
	}
	// The first replicas come without a move. What a list from before the start names is there, or
	// is lost: an empty replica in its place would hide that. A stream that is gone has none to make.
	if value == nil || len(before.Replicas) == 0 && a.MoveID == nil && (a.Epoch == 1 || e.hasBegun) {
		s.fresh = a.Replicas
	}
	s.assignment = a
	e.wake(s, 0)
	return nil
}

// wake has a shard settled a while later: something has changed, or is to be tried again.
func (e *executor) wake(s *shard, wait time.Duration) {
	time.AfterFunc(wait, func() {
		s.Lock()
		defer s.Unlock()
		e.Lock()
		defer e.Unlock()
		if err := e.settle(s); err != nil {
			log.Printf("%s is tried again in %s: %v", s.key, deletionPause, err)
			e.wake(s, deletionPause)
		}
	})
}

// settle deletes, answers what was called off, makes first replicas, and carries a move out.
func (e *executor) settle(s *shard) error {
	a := s.assignment
	if a == nil || !e.hasBegun { // only a record says what to do
		return nil
	}
	for _, node := range e.store.nodes(s.key) {
		if !slices.Contains(slices.Concat(a.Replicas, a.Adding), node) {
			if err := e.store.delete(s.key, node); err != nil {
				return err
			}
		}
	}
	for _, node := range s.fresh {
		if err := e.store.create(s.key, node); err != nil {
			e.tell("ReplicaLost", &Move{Stream: a.Stream, Shard: a.Shard, Add: &node}, err)
		}
	}
	s.fresh = nil
	var due *Move
	for id, m := range s.moves {
		if slices.Contains(calledOff, m.State) && s.answered[id] != m && (a.Epoch > m.ExpectedEpoch || a.Epoch == 0) {
			s.answered[id] = m
			e.tell("MoveStopped", m, nil) // its copy was deleted above
		} else if e.wants(s, m) && time.Now().UnixMilli() < m.Deadline {
			due = m
		}
	}
	if due != nil && (e.carrying == movesMax || time.Now().Before(s.retryAt)) {
		e.wake(s, 100*time.Millisecond)
	} else if due != nil {
		e.carryOut(s, due)
	}
	return nil
}

// wants tells whether a move is open, valid and not answered yet.
func (e *executor) wants(s *shard, m *Move) bool {
	return slices.Contains(open, cmp.Or(s.moves[m.MoveID], &Move{}).State) &&
		s.assignment.Epoch == m.ExpectedEpoch && s.answered[m.MoveID] == nil
}

// carryOut does what a move asks for, without the lock, and says how that ended.
func (e *executor) carryOut(s *shard, m *Move) {
	if m.State == Issued && s.failures == 0 {
		e.tell("MoveAccepted", m, nil)
	}
	e.carrying++
	e.Unlock()
	err := e.act(s, m)
	e.Lock()
	e.carrying--
	said := "MoveCompleted" // past the deadline too: that is told, not hidden
	if err != nil {
		said = "MoveFailed"
	}
	if !e.wants(s, m) { // it was called off, which is answered next
		s.failures = 0
	} else if s.failures++; err == nil || s.failures == attemptsMax {
		s.answered[m.MoveID], s.failures = m, 0
		e.tell(said, m, err)
	} else { // those that failed at once are to come apart
		s.retryAt = time.Now().Add(rand.N(time.Second<<s.failures/2) + time.Second<<s.failures/4)
		log.Printf("move %s has failed, and is tried again: %v", m.MoveID, err)
	}
	e.wake(s, 0)
}

func (e *executor) act(s *shard, m *Move) error {
	switch {
	case m.Kind == Remove || m.Kind == MoveKindLeader:
		return nil // nobody is served from these files; the assignment says what is deleted
	case m.Kind != Add && m.Kind != Replace || m.Add == nil:
		return fmt.Errorf("a move of kind %q is not known", m.Kind)
	case m.State != Issued && e.store.holds(s.key, *m.Add):
		return nil // it was complete before this start
	case m.Source == nil:
		return errors.New("no live replica is left to copy from")
	}
	// A report each quarter of the move's time; one that has not grown would extend nothing.
	interval := min(time.Duration(m.Deadline-m.IssuedAt)*time.Millisecond/4, 30*time.Second)
	toldAt, report, done := time.Now(), *m, int64(0)
	return e.store.copy(s.key, *m.Source, *m.Add, func(bytes int) error {
		e.Lock()
		defer e.Unlock()
		if done += int64(bytes); !e.wants(s, m) {
			return errors.New("it is not wanted any more")
		} else if time.Since(toldAt) >= interval {
			toldAt, report.BytesDone = time.Now(), &done
			e.tell("MoveProgressed", &report, nil)
		}
		return nil
	})
}

// tell says something of a move. What is said again has the same id, so that it counts once.
func (e *executor) tell(message string, m *Move, reason error) {
	said := MoveProgressed{Stream: m.Stream, Shard: m.Shard, Uid: m.Uid,
		NodeID: cmp.Or(m.Add, m.Leader, m.Remove), BytesDone: m.BytesDone}
	if m.MoveID != "" {
		said.MoveID = &m.MoveID
	}
	if reason != nil {
		said.Reason = new(reason.Error())
	}
	value, _ := json.Marshal(said) // of texts and numbers: cannot fail
	record := kgo.KeyStringRecord(fmt.Sprintf("%s/%d", m.Stream, m.Shard), string(value))
	for name, value := range map[string]string{"ce_specversion": "1.0", "ce_source": "/executor/go",
		"ce_type": "placement." + message + ".v1", "ce_subject": string(record.Key),
		"ce_id": message + ":" + string(value), "content-type": "application/json"} {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	log.Printf("%s %s", message, value)
	e.client.Produce(context.Background(), record, func(_ *kgo.Record, err error) {
		if err != nil {
			log.Fatal(err) // the next start says it again: it follows from the topics and the store
		}
	})
}

// store holds the replicas of shard STREAM/N as files ROOT/NODE/STREAM.N, and copies under way with
// .part behind their names.
type store string

func (s store) path(shard, node string) string {
	return filepath.Join(string(s), node, strings.ReplaceAll(shard, "/", "."))
}

// holds tells whether a node has a complete replica: only that has its name.
func (s store) holds(shard, node string) bool {
	_, err := os.Stat(s.path(shard, node))
	return err == nil
}

// nodes lists those that have anything of a shard, complete or not.
func (s store) nodes(shard string) (nodes []string) {
	whole, _ := filepath.Glob(s.path(shard, "*"))
	parts, _ := filepath.Glob(s.path(shard, "*") + ".part")
	for _, path := range append(whole, parts...) {
		nodes = append(nodes, filepath.Base(filepath.Dir(path)))
	}
	return nodes
}

// create makes an empty replica where there is none.
func (s store) create(shard, node string) error {
	err := os.MkdirAll(filepath.Dir(s.path(shard, node)), 0o777)
	if err == nil && !s.holds(shard, node) {
		err = os.WriteFile(s.path(shard, node), nil, 0o666)
	}
	return err
}

// delete removes all that a node has of a shard, which may be nothing.
func (s store) delete(shard, node string) error {
	return errors.Join(os.RemoveAll(s.path(shard, node)), os.RemoveAll(s.path(shard, node)+".part"))
}

// copy makes a complete replica in place of whatever is there, or leaves nothing. An error of step,
// which takes the bytes of each step, ends it. To be examined, it takes COPY_SECONDS, and fails where
// COPY_FAILS is set.
func (s store) copy(shard, from, to string, step stepFunc) error {
	target := s.path(shard, to)
	err := errors.Join(s.delete(shard, to), os.MkdirAll(filepath.Dir(target), 0o777))
	source, err2 := os.Open(s.path(shard, from))
	defer source.Close()
	part, err3 := os.Create(target + ".part")
	defer os.Remove(target + ".part")
	defer part.Close()
	if err = cmp.Or(err, err2, err3); err == nil && os.Getenv("COPY_FAILS") != "" {
		err = errors.New("it fails, as COPY_FAILS asks for")
	}
	seconds, _ := time.ParseDuration(os.Getenv("COPY_SECONDS") + "s")
	for n := 0; n < 20 && err == nil && seconds > 0; n++ {
		time.Sleep(seconds / 20)
		err = step(1)
	}
	if err == nil {
		_, err = io.Copy(io.MultiWriter(part, step), source)
	}
	if err = cmp.Or(err, part.Sync()); err != nil {
		return err
	}
	return os.Rename(target+".part", target)
}

type stepFunc func(bytes int) error

func (s stepFunc) Write(data []byte) (int, error) { return len(data), s(len(data)) }
