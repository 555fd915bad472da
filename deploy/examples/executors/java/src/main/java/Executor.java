import static java.nio.charset.StandardCharsets.UTF_8;

import com.fasterxml.jackson.annotation.JsonInclude;
import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;
import org.slf4j.*;
import placement.*;

/** An executor in Java: reads what the reconciler has decided, carries moves out over files, and says so. */
public final class Executor {
    private static final Logger LOG = LoggerFactory.getLogger(Executor.class);
    private static final int MOVES_MAX = 4; // that are carried out at once
    private static final int ATTEMPTS_MAX = 4; // of a copy, with pauses of about 1, 2 and 4 s; a deletion has no end
    private static final long DELETION_PAUSE_MS = 5_000;
    private static final Set<MoveState> OPEN = EnumSet.of(MoveState.ISSUED, MoveState.ACCEPTED);
    private static final Set<MoveState> CALLED_OFF =
            EnumSet.of(MoveState.CANCELLED, MoveState.SUPERSEDED, MoveState.EXPIRED);
    private static final String DROPPED = "{\"replicas\": [], \"adding\": []}"; // what a tombstone says
    /** What a later version adds is ignored, and a word that it adds is null. */
    private static final JsonMapper JSON = JsonMapper.builder()
            .propertyNamingStrategy(PropertyNamingStrategies.SNAKE_CASE)
            .enable(MapperFeature.ACCEPT_CASE_INSENSITIVE_ENUMS)
            .enable(DeserializationFeature.READ_UNKNOWN_ENUM_VALUES_AS_NULL)
            .disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES)
            .serializationInclusion(JsonInclude.Include.NON_NULL).build();

    /** What is known of a shard. What to do follows from it, in whatever order records came. */
    private static final class Shard {
        final String key; // STREAM/N
        Assignment assignment; // without an epoch after a tombstone; null: nothing is known yet
        final Map<String, Move> moves = new HashMap<>(); // the last record of each
        final Map<String, Move> answered = new HashMap<>(); // the record of each that was answered last
        List<String> fresh = List.of(); // nodes that are to make an empty replica
        int failures; // of the move that is carried out
        long retryAt;
        long toldAt; // the last report on the copy that is under way

        Shard(String key) {
            this.key = key;
        }

        /** Tells whether a move is open, valid and not answered yet. */
        boolean wants(Move move) {
            Move latest = moves.get(move.getMoveID());
            return latest != null && OPEN.contains(latest.getState())
                    && assignment.getEpoch() == move.getExpectedEpoch() && !answered.containsKey(move.getMoveID());
        }
    }

    private final FileStore store = new FileStore(Path.of(System.getenv("STORE")));
    private final String prefix = System.getenv("TOPIC_PREFIX");
    private final KafkaConsumer<String, String> consumer = new KafkaConsumer<>(Map.of(
            "bootstrap.servers", System.getenv("KAFKA_BOOTSTRAP"),
            "isolation.level", "read_committed", "auto.offset.reset", "earliest",
            "enable.auto.commit", "false", "allow.auto.create.topics", "false"),
            new StringDeserializer(), new StringDeserializer());
    private final KafkaProducer<String, String> producer = new KafkaProducer<>(Map.of(
            "bootstrap.servers", System.getenv("KAFKA_BOOTSTRAP"), // idempotent and acks=all by default
            "delivery.timeout.ms", Integer.MAX_VALUE), new StringSerializer(), new StringSerializer());
    private final ExecutorService threads = Executors.newFixedThreadPool(MOVES_MAX + 1);
    private final Map<String, Shard> shards = new HashMap<>();
    private final Map<String, Shard> shardOf = new HashMap<>(); // by move
    private final Set<Shard> carrying = new HashSet<>(); // those whose move is carried out
    private boolean hasBegun; // all that was on the topics at the start is read

    public static void main(String[] arguments) {
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> fail(error));
        var executor = new Executor();
        Runtime.getRuntime().addShutdownHook(new Thread(executor::leave));
        executor.follow();
    }

    /** Ends the program. Its next start says what was not delivered: all follows from topics and store. */
    private static void fail(Throwable error) {
        LOG.error("the executor ends", error);
        Runtime.getRuntime().halt(1);
    }

    private synchronized void leave() {
        producer.flush(); // with the lock, so that nothing else is said
        Runtime.getRuntime().halt(0);
    }

    /** Reads records, from the beginning at every start and without a group. */
    private void follow() {
        List<TopicPartition> partitions = Stream.of(prefix + "moves.v1", prefix + "assignments.v1")
                .flatMap(topic -> consumer.partitionsFor(topic).stream())
                .map(each -> new TopicPartition(each.topic(), each.partition())).toList();
        consumer.assign(partitions);
        consumer.seekToBeginning(partitions);
        Map<TopicPartition, Long> ends = consumer.endOffsets(partitions); // of what is committed
        while (true) {
            synchronized (this) {
                // The marker of a transaction is no record, but moves the position.
                if (!hasBegun && partitions.stream().allMatch(p -> consumer.position(p) >= ends.get(p))) {
                    hasBegun = true;
                    shards.values().forEach(shard -> wake(shard, 0));
                }
            }
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                try {
                    see(record);
                } catch (IOException error) {
                    LOG.error("{} offset {} is left out", record.topic(), record.offset(), error);
                }
            }
        }
    }

    private synchronized void see(ConsumerRecord<String, String> record) throws IOException {
        if (!record.topic().endsWith("moves.v1")) {
            seeAssignment(shards.computeIfAbsent(record.key(), Shard::new), record.value());
        } else if (record.value() == null) { // a tombstone: the move ended a while ago
            Shard shard = shardOf.remove(record.key());
            if (shard != null) {
                shard.moves.remove(record.key());
                shard.answered.remove(record.key());
            }
        } else {
            Move move = JSON.readValue(record.value(), Move.class);
            Shard shard = shards.computeIfAbsent(move.getStream() + "/" + move.getShard(), Shard::new);
            shard.moves.put(record.key(), move);
            shardOf.put(record.key(), shard);
            wake(shard, 0);
        }
    }

    private void seeAssignment(Shard shard, String value) throws IOException {
        Assignment before = shard.assignment;
        Assignment next = JSON.readValue(value == null ? DROPPED : value, Assignment.class);
        if (value != null && before != null && next.getEpoch() <= before.getEpoch()) {
            return; // an epoch that was passed is old news
        }
        // The first replicas come without a move. What a list from before the start names is there, or
        // is lost: an empty replica in its place would hide that. A stream that is gone has none to make.
        boolean isFirst = before == null || before.getReplicas().isEmpty();
        if (value == null || isFirst && next.getMoveID() == null && (next.getEpoch() == 1 || hasBegun)) {
            shard.fresh = next.getReplicas();
        }
        shard.assignment = next;
        wake(shard, 0);
    }

    /** Has a shard settled a while later: something has changed, or is to be tried again. */
    private void wake(Shard shard, long waitMs) {
        CompletableFuture.delayedExecutor(waitMs, TimeUnit.MILLISECONDS, threads).execute(() -> {
            try {
                settle(shard);
            } catch (IOException error) {
                LOG.warn("{} is tried again in {} ms", shard.key, DELETION_PAUSE_MS, error);
                wake(shard, DELETION_PAUSE_MS);
            }
        });
    }

    /** Deletes, answers what was called off, makes first replicas, and has a move carried out. */
    private synchronized void settle(Shard shard) throws IOException {
        Assignment assignment = shard.assignment;
        if (assignment == null || !hasBegun || carrying.contains(shard)) {
            return; // one thing is done at a time: a move that ends wakes the shard, as each record does
        }
        for (String node : store.nodes()) {
            if (!assignment.getReplicas().contains(node) && !assignment.getAdding().contains(node)) {
                store.delete(shard.key, node);
            }
        }
        for (String node : shard.fresh) {
            try {
                store.create(shard.key, node);
            } catch (IOException error) {
                var lost = new Move(); // there was none: the first replicas come without
                lost.setStream(assignment.getStream());
                lost.setShard(assignment.getShard());
                lost.setAdd(node);
                tell("ReplicaLost", lost, null, error);
            }
        }
        shard.fresh = List.of();
        Move due = null;
        for (Move move : shard.moves.values()) {
            boolean isPassed = assignment.getEpoch() > move.getExpectedEpoch() || assignment.getEpoch() == 0;
            if (CALLED_OFF.contains(move.getState()) && shard.answered.get(move.getMoveID()) != move && isPassed) {
                shard.answered.put(move.getMoveID(), move);
                tell("MoveStopped", move, null, null); // its copy was deleted above
            } else if (shard.wants(move) && System.currentTimeMillis() < move.getDeadline()) {
                due = move;
            }
        }
        if (due != null && (carrying.size() == MOVES_MAX || System.currentTimeMillis() < shard.retryAt)) {
            wake(shard, 100);
        } else if (due != null) {
            if (due.getState() == MoveState.ISSUED && shard.failures == 0) {
                tell("MoveAccepted", due, null, null);
            }
            carrying.add(shard);
            Move move = due;
            threads.execute(() -> finish(shard, move, carryOut(shard, move)));
        }
    }

    /** Does what a move asks for, without the lock, and returns what went wrong. */
    private Exception carryOut(Shard shard, Move move) {
        if (move.getKind() == MoveKind.REMOVE || move.getKind() == MoveKind.LEADER) {
            return null; // nobody is served from these files; the assignment says what is deleted
        } else if (move.getKind() == null || move.getAdd() == null) {
            return new IllegalArgumentException("the kind of move is not known");
        } else if (move.getState() != MoveState.ISSUED && store.holds(shard.key, move.getAdd())) {
            return null; // it was complete before this start
        } else if (move.getSource() == null) {
            return new IllegalArgumentException("no live replica is left to copy from");
        }
        // A report each quarter of the move's time; one that has not grown would extend nothing.
        long intervalMs = Math.min((move.getDeadline() - move.getIssuedAt()) / 4, 30_000);
        shard.toldAt = System.currentTimeMillis();
        try {
            store.copy(shard.key, move.getSource(), move.getAdd(), done -> {
                synchronized (this) {
                    if (!shard.wants(move)) {
                        throw new CancellationException("it is not wanted any more");
                    } else if (System.currentTimeMillis() - shard.toldAt >= intervalMs) {
                        shard.toldAt = System.currentTimeMillis();
                        tell("MoveProgressed", move, done, null);
                    }
                }
            });
            return null;
        } catch (IOException | InterruptedException | CancellationException error) {
            return error;
        }
    }

    private synchronized void finish(Shard shard, Move move, Exception error) {
        carrying.remove(shard);
        if (!shard.wants(move)) { // it was called off, which is answered next
            shard.failures = 0;
        } else if (error == null || ++shard.failures == ATTEMPTS_MAX) {
            shard.answered.put(move.getMoveID(), move);
            shard.failures = 0;
            // Past the deadline too: that is told, not hidden.
            tell(error == null ? "MoveCompleted" : "MoveFailed", move, null, error);
        } else { // those that failed at once are to come apart
            long longestMs = 1000L << (shard.failures - 1);
            shard.retryAt = System.currentTimeMillis() + ThreadLocalRandom.current().nextLong(longestMs / 2, longestMs);
            LOG.warn("move {} has failed, and is tried again", move.getMoveID(), error);
        }
        wake(shard, 0);
    }

    /** Says something, in the fields that all acknowledgements share. What is said again has the same id. */
    private void tell(String message, Move move, Long bytesDone, Exception reason) {
        var actors = Stream.of(move.getAdd(), move.getLeader(), move.getRemove());
        var said = new MoveProgressed();
        said.setStream(move.getStream());
        said.setShard(move.getShard());
        said.setNodeID(actors.filter(Objects::nonNull).findFirst().orElse(null));
        said.setMoveID(move.getMoveID());
        said.setUid(move.getUid());
        said.setBytesDone(bytesDone);
        said.setReason(reason == null ? null : reason.toString());
        String key = said.getStream() + "/" + said.getShard();
        String value = JSON.valueToTree(said).toString();
        String id = message + ":" + value;
        var record = new ProducerRecord<>(prefix + "acks.v1", key, value);
        Map.of("ce_specversion", "1.0", "ce_source", "/executor/java", "ce_subject", key, "ce_id", id,
                        "ce_type", "placement." + message + ".v1", "content-type", "application/json")
                .forEach((name, text) -> record.headers().add(name, text.getBytes(UTF_8)));
        LOG.info(id);
        producer.send(record, (metadata, error) -> Optional.ofNullable(error).ifPresent(Executor::fail));
    }
}
