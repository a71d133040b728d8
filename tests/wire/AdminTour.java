import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeConsumerGroupsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The calls of Kafka's command-line tools (topics, consumer-groups, get-offsets, features, metadata-quorum,
 * delete-records, log-dirs, transactions describe-producers) on a cluster; prints one line per result for the test that runs it.
 */
public class AdminTour {
    static void show(String name, Object value) {
        System.out.println(name + "=" + value);
    }

    static String reason(Exception error) {
        Throwable cause = error.getCause() == null ? error : error.getCause();
        return cause.getClass().getSimpleName();
    }

    interface Call {
        Object get() throws Exception;
    }

    static void attempt(String name, Call call) {
        try {
            show(name, call.get());
        } catch (Exception error) {
            show(name, reason(error));
        }
    }

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0], topic = arguments[1], group = arguments[2];
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.metrics.push", "false");
        TopicPartition first = new TopicPartition(topic, 0);
        try (Admin admin = Admin.create(settings)) {
            try (KafkaProducer<byte[], byte[]> producer =
                    new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
                for (int number = 0; number < 3; number++) {
                    producer.send(new ProducerRecord<>(topic, 0, null, new byte[] {1})).get();
                }
            }
            show("log_end", admin.listOffsets(Map.of(first, OffsetSpec.latest())).all().get().get(first).offset());
            show("log_start", admin.listOffsets(Map.of(first, OffsetSpec.earliest())).all().get().get(first).offset());
            show("partitions", admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size());
            var states = admin.describeProducers(List.of(first)).all().get().get(first).activeProducers();
            show("producers", states.size());
            show("last_sequence", states.get(0).lastSequence());
            try (KafkaConsumer<byte[], byte[]> consumer =
                    new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                consumer.subscribe(List.of(topic));
                int seen = 0;
                while (seen < 3) {
                    seen += consumer.poll(Duration.ofMillis(200)).count();
                }
                consumer.commitSync();
                var described = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
                show("live_state", described.groupState());
                show("live_members", described.members().size());
                show("live_assignment", described.members().iterator().next().assignment().topicPartitions().size());
                attempt("live_delete", () -> admin.deleteConsumerGroups(List.of(group)).all().get());
                attempt("live_delete_offsets", () -> admin.deleteConsumerGroupOffsets(group, Set.of(first)).all().get());
            }
            show("empty_state", admin.describeConsumerGroups(List.of(group)).all().get().get(group).groupState());
            show("committed", admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(first).offset());
            show("listed", admin.listGroups().all().get().stream().filter(one -> one.groupId().equals(group)).findFirst().map(one -> one.groupState().get() + " " + one.type().get()).orElse("missing"));
            admin.alterConsumerGroupOffsets(group, Map.of(first, new OffsetAndMetadata(1))).all().get();
            show("reset", admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(first).offset());
            attempt("delete_offsets", () -> admin.deleteConsumerGroupOffsets(group, Set.of(first)).all().get());
            show("after_delete_offsets", admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(first));
            attempt("delete", () -> admin.deleteConsumerGroups(List.of(group)).all().get());
            attempt("gone", () -> admin.describeConsumerGroups(List.of(group)).all().get());
            var features = admin.describeFeatures().featureMetadata().get();
            show("finalized", new TreeMap<>(features.finalizedFeatures()));
            show("supported", new TreeMap<>(features.supportedFeatures()));
            show("has_epoch", features.finalizedFeaturesEpoch().isPresent());
            var quorum = admin.describeMetadataQuorum().quorumInfo().get();
            show("voters", quorum.voters().size());
            show("observers", quorum.observers().size());
            show("has_leader", quorum.leaderId() >= 0);
            show("low_watermark", admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(2))).lowWatermarks().get(first).get().lowWatermark());
            show("start_after_delete", admin.listOffsets(Map.of(first, OffsetSpec.earliest())).all().get().get(first).offset());
            attempt("delete_too_much", () -> admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(9))).all().get());
            var directories = admin.describeLogDirs(List.of(1, 2, 3)).allDescriptions().get();
            show("directories", directories.values().stream().mapToInt(Map::size).sum());
            show("replicas_in_directories", directories.values().stream().flatMap(one -> one.values().stream()).filter(one -> one.replicaInfos().containsKey(first)).count());
        }
    }
}
