import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.HashSet;
import java.util.Set;

/** Holds the replicas of shard STREAM/N as files ROOT/NODE/STREAM.N; .part stands behind copies under way. */
record FileStore(Path root) {
    private static final String PART = ".part";

    /** Takes the bytes of each step of a copy, and throws where it is to end. */
    interface Step {
        void take(long bytes) throws IOException;
    }

    private Path path(String shard, String node) {
        return root.resolve(node).resolve(shard.replace('/', '.'));
    }

    private Path part(String shard, String node) {
        return Path.of(path(shard, node) + PART);
    }

    /** Tells whether a node has a complete replica: only that has its name. */
    boolean holds(String shard, String node) {
        return Files.exists(path(shard, node));
    }

    /** Lists the nodes that have anything of a shard, complete or not. */
    Set<String> nodes(String shard) throws IOException {
        var nodes = new HashSet<String>();
        try (DirectoryStream<Path> folders = Files.newDirectoryStream(Files.createDirectories(root))) {
            for (Path folder : folders) {
                String node = folder.getFileName().toString();
                if (holds(shard, node) || Files.exists(part(shard, node))) {
                    nodes.add(node);
                }
            }
        }
        return nodes;
    }

    /** Makes an empty replica where there is none. */
    void create(String shard, String node) throws IOException {
        Files.createDirectories(root.resolve(node));
        if (!holds(shard, node)) {
            Files.createFile(path(shard, node));
        }
    }

    /** Removes all that a node has of a shard, which may be nothing. */
    void delete(String shard, String node) throws IOException {
        Files.deleteIfExists(path(shard, node));
        Files.deleteIfExists(part(shard, node));
    }

    /**
     * Makes a complete replica in place of whatever is there, or leaves nothing. To be examined, it takes
     * COPY_SECONDS, and fails where COPY_FAILS is set.
     */
    void copy(String shard, String from, String to, Step step) throws IOException, InterruptedException {
        delete(shard, to);
        Path part = Files.createDirectories(root.resolve(to)).resolve(part(shard, to));
        try (var source = FileChannel.open(path(shard, from));
                var target = FileChannel.open(part, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)) {
            if (System.getenv("COPY_FAILS") != null) {
                throw new IOException("it fails, as COPY_FAILS asks for");
            }
            double seconds = Double.parseDouble(System.getenv().getOrDefault("COPY_SECONDS", "0"));
            for (int n = 0; n < 20 && seconds > 0; n++) {
                Thread.sleep((long) (seconds * 1000 / 20));
                step.take(1);
            }
            for (long count; (count = source.transferTo(target.position(), 1 << 16, target)) > 0; ) {
                step.take(count);
            }
            target.force(true);
            Files.move(part, path(shard, to), StandardCopyOption.ATOMIC_MOVE);
        } finally {
            Files.deleteIfExists(part);
        }
    }
}
