import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The transactional calls of Kafka's Java client: consume-transform-produce, abort, a zombie, a timeout. Prints one line
 * per result for the test that runs it.
 *
 * <p>Arguments: the brokers, the topic to consume, which has numbers from 0 on, the topic to produce to, a group.
 */
public class TransactionTour {
    static final int ROUND = 5;
    static String bootstrap;
    static String source;
    static String sink;
    static String group;

    interface Call {
        void run() throws Exception;
    }

    static void show(String name, Object value) {
        System.out.println(name + "=" + value);
    }

    /** Prints the class of what a call throws, or "none". */
    static void attempt(String name, Call call) {
        try {
            call.run();
            show(name, "none");
        } catch (Exception error) {
            Throwable cause = error instanceof java.util.concurrent.ExecutionException ? error.getCause() : error;
            show(name, cause.getClass().getSimpleName());
        }
    }

    static KafkaProducer<String, String> producer(String transactionalId, int timeoutMs) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", transactionalId);
        settings.put("transaction.timeout.ms", timeoutMs);
        settings.put("enable.metrics.push", "false");
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(String isolation, String ofGroup) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("isolation.level", isolation);
        settings.put("group.id", ofGroup);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.poll.records", ROUND);
        settings.put("enable.metrics.push", "false");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    static ProducerRecord<String, String> record(String value) {
        return new ProducerRecord<>(sink, 0, null, value);
    }

    /** Consumes one round after another, with its positions in the transaction; each second attempt is aborted. */
    static void transform(int count) {
        TopicPartition partition = new TopicPartition(source, 0);
        try (KafkaProducer<String, String> producer = producer(group + "-transform", 60_000);
                KafkaConsumer<String, String> consumer = consumer("read_committed", group)) {
            producer.initTransactions();
            consumer.subscribe(List.of(source));
            int done = 0, attempts = 0, aborted = 0;
            while (done < count) {
                var records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                long next = 0;
                for (ConsumerRecord<String, String> one : records) {
                    producer.send(record("of " + one.value()));
                    next = one.offset() + 1;
                }
                producer.sendOffsetsToTransaction(
                        Map.of(partition, new OffsetAndMetadata(next)), consumer.groupMetadata());
                if (++attempts % 2 == 1) {
                    producer.abortTransaction();
                    aborted++;
                    var committed = consumer.committed(java.util.Set.of(partition)).get(partition);
                    consumer.seek(partition, committed == null ? 0 : committed.offset());
                } else {
                    producer.commitTransaction();
                    done += records.count();
                }
            }
            show("aborted", aborted);
            show("position", consumer.committed(java.util.Set.of(partition)).get(partition).offset());
        }
    }

    /** Positions of a member that has left the group are refused, and the transaction can only be aborted. */
    static void staleMember() {
        TopicPartition partition = new TopicPartition(source, 0);
        try (KafkaProducer<String, String> producer = producer(group + "-stale", 60_000)) {
            producer.initTransactions();
            KafkaConsumer<String, String> consumer = consumer("read_committed", group + "-stale");
            consumer.subscribe(List.of(source));
            while (consumer.poll(Duration.ofMillis(200)).isEmpty()) {
                // Until the member has its partition.
            }
            var member = consumer.groupMetadata();
            consumer.close();
            producer.beginTransaction();
            producer.send(record("stale"));
            attempt("stale_offsets", () -> producer.sendOffsetsToTransaction(
                    Map.of(partition, new OffsetAndMetadata(1)), member));
            attempt("stale_abort", producer::abortTransaction);
        }
    }

    /** The transactional id has another producer: the first can neither send nor commit. */
    static void zombie() {
        try (KafkaProducer<String, String> zombie = producer(group + "-zombie", 60_000);
                KafkaProducer<String, String> successor = producer(group + "-zombie", 60_000)) {
            zombie.initTransactions();
            zombie.beginTransaction();
            attempt("zombie_before", () -> zombie.send(record("zombie")).get());
            successor.initTransactions();
            attempt("zombie_send", () -> zombie.send(record("zombie")).get());
            attempt("zombie_commit", zombie::commitTransaction);
            successor.beginTransaction();
            attempt("successor_send", () -> successor.send(record("successor")).get());
            attempt("successor_commit", successor::commitTransaction);
        }
    }

    /** The coordinator aborts a transaction that exceeds its timeout. The producer has to be replaced. */
    static void timeout() throws InterruptedException {
        try (KafkaProducer<String, String> slow = producer(group + "-slow", 1000)) {
            slow.initTransactions();
            slow.beginTransaction();
            attempt("slow_send", () -> slow.send(record("slow")).get());
            // Longer than the timeout and the interval at which the coordinator looks for such transactions.
            Thread.sleep(15_000);
            attempt("slow_commit", slow::commitTransaction);
        }
        try (KafkaProducer<String, String> next = producer(group + "-slow", 60_000)) {
            next.initTransactions();
            next.beginTransaction();
            attempt("next_send", () -> next.send(record("next")).get());
            attempt("next_commit", next::commitTransaction);
        }
    }

    /** A transaction without records, and one after it. */
    static void empty() {
        try (KafkaProducer<String, String> producer = producer(group + "-empty", 60_000)) {
            producer.initTransactions();
            for (int round = 0; round < 2; round++) {
                producer.beginTransaction();
                producer.commitTransaction();
                producer.beginTransaction();
                producer.abortTransaction();
            }
            producer.beginTransaction();
            producer.send(record("after empty"));
            attempt("after_empty", producer::commitTransaction);
        }
    }

    static List<String> read(String isolation) {
        TopicPartition partition = new TopicPartition(sink, 0);
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = consumer(isolation, group + "-reader")) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            while (consumer.position(partition) < end) {
                consumer.poll(Duration.ofMillis(200)).forEach(one -> values.add(one.value()));
            }
        }
        return values;
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        source = arguments[1];
        sink = arguments[2];
        group = arguments[3];
        transform(Integer.parseInt(arguments[4]));
        staleMember();
        zombie();
        timeout();
        empty();
        show("committed", String.join(",", read("read_committed")));
        show("uncommitted", read("read_uncommitted").size());
    }
}
