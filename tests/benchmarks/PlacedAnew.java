import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.metadata.placement.ClusterDescriber;
import org.apache.kafka.metadata.placement.PartitionAssignment;
import org.apache.kafka.metadata.placement.PlacementSpec;
import org.apache.kafka.metadata.placement.StripedReplicaPlacer;
import org.apache.kafka.metadata.placement.UsableBroker;

/**
 * What moves when every topic is placed anew, without a look at what is there, as
 * `kafka-reassign-partitions --generate` does; with Kafka's own placer before and after.
 *
 * <p>Arguments: partitions, the most of one topic and the replication factor. Standard input: a
 * broker on each line, its rack and when it is there: `always`, `before` or `after` the change.
 * Answers `seconds S`, CPU time of this thread in the last of several runs, `moved N`, the replicas
 * on brokers that did not hold their partition, and `left N`, those of brokers that are gone.
 */
public final class PlacedAnew {
    private static final Uuid DIRECTORY = new Uuid(1, 1);
    private static final int RUNS = 5;

    public static void main(String[] arguments) throws Exception {
        int[] given = Arrays.stream(arguments).mapToInt(Integer::parseInt).toArray();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        List<UsableBroker> old = new ArrayList<>();
        List<UsableBroker> now = new ArrayList<>();
        int id = 0;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] told = line.split(" ");
            UsableBroker broker = new UsableBroker(id++, Optional.of(told[0]), false);
            if (!told[1].equals("after")) {
                old.add(broker);
            }
            if (!told[1].equals("before")) {
                now.add(broker);
            }
        }
        List<PartitionAssignment> before = place(given, old, -1);
        double seconds = 0;
        List<PartitionAssignment> after = before;
        for (int run = 0; run < RUNS; run++) {
            long begun = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
            after = place(given, now, run);
            seconds = (ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() - begun) / 1e9;
        }
        Set<Integer> there = new HashSet<>();
        now.forEach(broker -> there.add(broker.id()));
        long moved = 0;
        long left = 0;
        for (int partition = 0; partition < after.size(); partition++) {
            List<Integer> held = before.get(partition).replicas();
            for (int replica : after.get(partition).replicas()) {
                moved += held.contains(replica) ? 0 : 1;
            }
            for (int replica : held) {
                left += there.contains(replica) ? 0 : 1;
            }
        }
        System.out.println("seconds " + seconds);
        System.out.println("moved " + moved);
        System.out.println("left " + left);
    }

    private static List<PartitionAssignment> place(int[] given, List<UsableBroker> brokers, int seed) {
        ClusterDescriber cluster = new ClusterDescriber() {
            @Override
            public Iterator<UsableBroker> usableBrokers() {
                return brokers.iterator();
            }

            @Override
            public Uuid defaultDir(int broker) {
                return DIRECTORY;
            }
        };
        StripedReplicaPlacer placer = new StripedReplicaPlacer(new Random(seed));
        List<PartitionAssignment> placed = new ArrayList<>();
        for (int done = 0; done < given[0]; done += given[1]) {
            int count = Math.min(given[1], given[0] - done);
            placed.addAll(
                placer.place(new PlacementSpec(0, count, (short) given[2]), cluster).assignments());
        }
        return placed;
    }
}
