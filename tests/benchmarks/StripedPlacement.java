import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
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
 * Kafka's own placer under the stopwatch of `placing.py`.
 *
 * <p>Arguments: topics, partitions of each, replication factor, runs. Standard input: the rack of
 * each broker, one a line. Answers one line `seconds S` a run, CPU time of this thread, and at the
 * end one line `load N` a broker, its replicas after the last run.
 */
public final class StripedPlacement {
    private static final Uuid DIRECTORY = new Uuid(1, 1);

    public static void main(String[] arguments) throws Exception {
        int topics = Integer.parseInt(arguments[0]);
        int partitions = Integer.parseInt(arguments[1]);
        short factor = Short.parseShort(arguments[2]);
        int runs = Integer.parseInt(arguments[3]);
        List<UsableBroker> brokers = new ArrayList<>();
        BufferedReader racks = new BufferedReader(new InputStreamReader(System.in));
        for (String rack = racks.readLine(); rack != null; rack = racks.readLine()) {
            brokers.add(new UsableBroker(brokers.size(), Optional.of(rack), false));
        }
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
        PlacementSpec topic = new PlacementSpec(0, partitions, factor);
        int[] load = new int[brokers.size()];
        for (int run = 0; run < runs; run++) {
            StripedReplicaPlacer placer = new StripedReplicaPlacer(new Random(run));
            List<List<PartitionAssignment>> placed = new ArrayList<>();
            long begun = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
            for (int number = 0; number < topics; number++) {
                placed.add(placer.place(topic, cluster).assignments());
            }
            long ended = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
            System.out.println("seconds " + (ended - begun) / 1e9);
            load = new int[brokers.size()];
            for (List<PartitionAssignment> assignments : placed) {
                for (PartitionAssignment assignment : assignments) {
                    for (int broker : assignment.replicas()) {
                        load[broker]++;
                    }
                }
            }
        }
        for (int held : load) {
            System.out.println("load " + held);
        }
    }
}
