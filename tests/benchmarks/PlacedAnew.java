import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Optional;
import java.util.Random;
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
 * <p>Arguments: partitions, the most of one topic, replication factor, and the brokers there are
 * before and after the change, each as the first and the one behind the last. Standard input: the
 * rack of each broker, one a line. Answers `seconds S`, CPU time of this thread in the last of
 * several runs, `moved N`, the replicas on brokers that did not hold their partition, and `left N`,
 * those of brokers that are gone.
 */
public final class PlacedAnew {
    private static final Uuid DIRECTORY = new Uuid(1, 1);
    private static final int RUNS = 5;

    public static void main(String[] arguments) throws Exception {
        int[] given = Arrays.stream(arguments).mapToInt(Integer::parseInt).toArray();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        List<UsableBroker> brokers = new ArrayList<>();
        for (String rack = lines.readLine(); rack != null; rack = lines.readLine()) {
            brokers.add(new UsableBroker(brokers.size(), Optional.of(rack), false));
        }
        List<PartitionAssignment> before = place(given, brokers.subList(given[3], given[4]), -1);
        List<UsableBroker> now = brokers.subList(given[5], given[6]);
        double seconds = 0;
        List<PartitionAssignment> after = before;
        for (int run = 0; run < RUNS; run++) {
            long begun = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
            after = place(given, now, run);
            seconds = (ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() - begun) / 1e9;
        }
        long moved = 0;
        long left = 0;
        for (int partition = 0; partition < after.size(); partition++) {
            List<Integer> held = before.get(partition).replicas();
            for (int replica : after.get(partition).replicas()) {
                moved += held.contains(replica) ? 0 : 1;
            }
            for (int replica : held) {
                left += replica < given[5] || replica >= given[6] ? 1 : 0;
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
