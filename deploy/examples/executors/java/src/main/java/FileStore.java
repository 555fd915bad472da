import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.*;
import java.util.List;
import java.util.function.LongConsumer;
import java.util.stream.Stream;

/** Holds the replicas of shard STREAM/N as files ROOT/NODE/STREAM.N; .part stands behind copies under way. */
record FileStore(Path root) {
    private static final String PART = ".part";

    private Path path(String shard, String node) {
        return root.resolve(node).resolve(shard.replace('/', '.'));
    }

    /** Tells whether a node has a complete replica: only that has its name. */
    boolean holds(String shard, String node) {
        return Files.exists(path(shard, node));
    }

    /** Lists the nodes that have had a replica of any shard. */
    List<String> nodes() throws IOException {
        try (Stream<Path> folders = Files.list(Files.createDirectories(root))) {
            return folders.map(folder -> folder.getFileName().toString()).toList();
        }
    }

    /** Makes an empty replica where there is none. */
    void create(String shard, String node) throws IOException {
        Files.createDirectories(root.resolve(node));
        Files.write(path(shard, node), new byte[0], StandardOpenOption.CREATE);
    }

    /** Removes all that a node has of a shard, which may be nothing. */
    void delete(String shard, String node) throws IOException {
        Files.deleteIfExists(path(shard, node));
        Files.deleteIfExists(path(shard + PART, node));
    }

    /**
     * Makes a complete replica in place of whatever is there, or leaves nothing. Each step gets the bytes
     * done, and may throw. To be examined, it takes COPY_SECONDS, and fails where COPY_FAILS is set.
     */
    void copy(String shard, String from, String to, LongConsumer step) throws IOException, InterruptedException {
        delete(shard, to);
        Files.createDirectories(root.resolve(to));
        Path part = path(shard + PART, to);
        try (var source = FileChannel.open(path(shard, from));
                var target = FileChannel.open(part, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)) {
            if (System.getenv("COPY_FAILS") != null) {
                throw new IOException("it fails, as COPY_FAILS asks for");
            }
            double seconds = Double.parseDouble(System.getenv().getOrDefault("COPY_SECONDS", "0"));
            long done = 0;
            while (done < 20 && seconds > 0) {
                Thread.sleep((long) (seconds * 1000 / 20));
                step.accept(++done);
            }
            for (long count; (count = source.transferTo(target.position(), 1 << 16, target)) > 0; ) {
                step.accept(done += count);
            }
            target.force(true);
            Files.move(part, path(shard, to), StandardCopyOption.ATOMIC_MOVE);
        } finally {
            Files.deleteIfExists(part);
        }
    }
}
