import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Deserializer;

/**
 * Does operations on Kafka with the Java client, for the harness, which starts this program and decides what
 * the results mean (workloads/clients/java_client.py).
 *
 * <p>One line per request on standard input and one per result on standard output; fields are separated by
 * tabs, bytes are Base64 and null is "-". Requests of different clients are processed concurrently, those of
 * one client in their order. The program ends when its standard input ends.
 *
 * <pre>
 *   open    CLIENT BOOTSTRAP REQUEST_TIMEOUT_MS CONNECT_TIMEOUT_MS DELIVERY_TIMEOUT_MS
 *   append  ID CLIENT TOPIC PARTITION ACKS KEY VALUE
 *   poll    ID CLIENT TOPIC PARTITION POSITION LEADER_EPOCH MAX_BYTES MAX_WAIT_MS
 *   latest  ID CLIENT TOPIC PARTITION
 *   close   CLIENT
 *
 *   ready
 *   offset  ID OFFSET                                   of an append (-1: unknown) or a latest
 *   records ID END [OFFSET LEADER_EPOCH KEY VALUE]...   END is -1 if the log end is unknown
 *   error   ID SENT CLASS CODE MESSAGE                  SENT is "never" or "maybe"; CODE is "-" for client errors
 * </pre>
 */
public final class LaststandClient {
    private static final PrintStream RESULTS =
            new PrintStream(
                    new BufferedOutputStream(new FileOutputStream(FileDescriptor.out)),
                    false,
                    StandardCharsets.UTF_8);
    private static final int RETRY_BACKOFF_MS = 20;
    private static final Map<String, Client> CLIENTS = new ConcurrentHashMap<>();

    private LaststandClient() {}

    public static void main(String[] arguments) throws IOException {
        // Logging libraries print to standard output, which belongs to the results.
        System.setOut(System.err);
        result("ready");
        BufferedReader requests =
                new BufferedReader(
                        new InputStreamReader(new FileInputStream(FileDescriptor.in), StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            handle(line.split("\t", -1));
        }
        // The harness has ended. Nothing may delay the end of this process, least of all an orderly close.
        Runtime.getRuntime().halt(0);
    }

    private static void handle(String[] words) {
        switch (words[0]) {
            case "open":
                CLIENTS.put(words[1], new Client(words));
                break;
            case "close":
                Client closed = CLIENTS.remove(words[1]);
                if (closed != null) {
                    closed.close();
                }
                break;
            default:
                CLIENTS.get(words[2]).submit(words);
        }
    }

    static void result(Object... fields) {
        StringBuilder line = new StringBuilder();
        for (Object field : fields) {
            if (line.length() > 0) {
                line.append('\t');
            }
            line.append(field);
        }
        line.append('\n');
        synchronized (RESULTS) {
            RESULTS.print(line);
            RESULTS.flush();
        }
    }

    static void failed(String id, boolean wasNeverSent, Throwable error) {
        Throwable cause = error;
        while (!(cause instanceof ApiException) && cause.getCause() != null) {
            cause = cause.getCause();
        }
        String code = "-";
        // A timeout may be the client's own, so the code of the broker's timeout error would be a guess.
        if (cause instanceof ApiException && !(cause instanceof TimeoutException)) {
            Errors known = Errors.forException(cause);
            if (known != Errors.UNKNOWN_SERVER_ERROR) {
                code = String.valueOf(known.code());
            }
        }
        String message = String.valueOf(cause.getMessage()).replaceAll("\\s+", " ");
        result("error", id, wasNeverSent ? "never" : "maybe", cause.getClass().getSimpleName(), code, message);
    }

    static String encoded(byte[] bytes) {
        return bytes == null ? "-" : Base64.getEncoder().encodeToString(bytes);
    }

    /** One client of the harness: a thread, up to three producers and two consumers, made when first needed. */
    private static final class Client {
        private final ThreadPoolExecutor thread =
                new ThreadPoolExecutor(
                        1,
                        1,
                        0,
                        TimeUnit.SECONDS,
                        new LinkedBlockingQueue<>(),
                        Client::daemon,
                        // A producer may report an error after its client was closed; nothing is left to do then.
                        new ThreadPoolExecutor.DiscardPolicy());
        private final Map<String, Object> common = new HashMap<>();
        private final int requestTimeoutMs;
        private final int deliveryTimeoutMs;
        private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
        private Reader reader;
        private KafkaConsumer<byte[], byte[]> lister;

        Client(String[] words) {
            requestTimeoutMs = Integer.parseInt(words[3]);
            deliveryTimeoutMs = Integer.parseInt(words[5]);
            common.put("bootstrap.servers", words[2]);
            common.put("client.id", "laststand");
            common.put("request.timeout.ms", requestTimeoutMs);
            common.put("socket.connection.setup.timeout.ms", words[4]);
            common.put("socket.connection.setup.timeout.max.ms", words[4]);
            common.put("reconnect.backoff.ms", RETRY_BACKOFF_MS);
            common.put("reconnect.backoff.max.ms", 500);
            common.put("retry.backoff.ms", RETRY_BACKOFF_MS);
            common.put("retry.backoff.max.ms", 200);
            common.put("enable.metrics.push", false);
        }

        private static Thread daemon(Runnable work) {
            Thread made = new Thread(work, "client");
            made.setDaemon(true);
            return made;
        }

        void submit(String[] words) {
            thread.submit(
                    () -> {
                        try {
                            if (words[0].equals("append")) {
                                append(words);
                            } else if (words[0].equals("poll")) {
                                poll(words);
                            } else {
                                latest(words);
                            }
                        } catch (Throwable error) {
                            failed(words[1], false, error);
                        }
                    });
        }

        void close() {
            thread.submit(
                    () -> {
                        producers.values().forEach(one -> one.close(Duration.ZERO));
                        if (reader != null) {
                            reader.close();
                        }
                        if (lister != null) {
                            lister.close(Duration.ZERO);
                        }
                    });
            thread.shutdown();
        }

        private void append(String[] words) {
            String id = words[1];
            String acks = words[5];
            ProducerRecord<byte[], byte[]> record =
                    new ProducerRecord<>(words[3], Integer.parseInt(words[4]), bytes(words[6]), bytes(words[7]));
            Thread caller = Thread.currentThread();
            AtomicBoolean isSending = new AtomicBoolean(true);
            AtomicBoolean hasEnded = new AtomicBoolean();
            try {
                producer(acks)
                        .send(
                                record,
                                (metadata, error) -> {
                                    if (!hasEnded.compareAndSet(false, true)) {
                                        return;
                                    }
                                    if (error == null) {
                                        result("offset", id, metadata.hasOffset() ? metadata.offset() : -1);
                                        return;
                                    }
                                    // The producer reports on the thread of the caller what it never queued.
                                    boolean isQueued = !isSending.get() || Thread.currentThread() != caller;
                                    discardLater(acks, error);
                                    failed(id, !isQueued && isRefusal(error), error);
                                });
            } catch (RuntimeException error) {
                // The record may be in the queue already, for example if the producer found out after that that it
                // cannot go on.
                if (hasEnded.compareAndSet(false, true)) {
                    discardLater(acks, error);
                    failed(id, false, error);
                }
            } finally {
                isSending.set(false);
            }
        }

        private static boolean isRefusal(Exception error) {
            return error instanceof TimeoutException || error instanceof RecordTooLargeException;
        }

        private void discardLater(String acks, Exception error) {
            // An idempotent producer may refuse everything after an error; users make a new one.
            if (!isRefusal(error)) {
                thread.execute(
                        () -> {
                            KafkaProducer<byte[], byte[]> old = producers.remove(acks);
                            if (old != null) {
                                old.close(Duration.ZERO);
                            }
                        });
            }
        }

        private KafkaProducer<byte[], byte[]> producer(String acks) {
            KafkaProducer<byte[], byte[]> found = producers.get(acks);
            if (found == null) {
                boolean isIdempotent = acks.equals("-1");
                Map<String, Object> settings = new HashMap<>(common);
                settings.put("acks", acks);
                settings.put("enable.idempotence", isIdempotent);
                settings.put("delivery.timeout.ms", deliveryTimeoutMs);
                settings.put("max.block.ms", requestTimeoutMs);
                settings.put("linger.ms", 0);
                settings.put("buffer.memory", 4 << 20);
                if (!isIdempotent) {
                    // Without idempotence a retry may write twice.
                    settings.put("retries", 0);
                }
                found = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
                producers.put(acks, found);
            }
            return found;
        }

        private void poll(String[] words) throws InterruptedException {
            TopicPartition partition = new TopicPartition(words[3], Integer.parseInt(words[4]));
            long position = Long.parseLong(words[5]);
            int epoch = Integer.parseInt(words[6]);
            long deadline = System.nanoTime() + requestTimeoutMs * 1_000_000L;
            String sizes = words[7] + " " + words[8];
            while (true) {
                if (reader != null && !reader.canReadAgain(sizes)) {
                    reader.close();
                    reader = null;
                }
                if (reader == null) {
                    Map<String, Object> settings = new HashMap<>(common);
                    settings.put("max.partition.fetch.bytes", words[7]);
                    settings.put("fetch.max.bytes", words[7]);
                    settings.put("fetch.max.wait.ms", words[8]);
                    reader = new Reader(consumerSettings(settings), sizes);
                }
                if (reader.poll(words[1], partition, position, epoch, deadline)) {
                    return;
                }
                // As between two attempts of the consumer itself.
                Thread.sleep(RETRY_BACKOFF_MS);
            }
        }

        private void latest(String[] words) {
            TopicPartition partition = new TopicPartition(words[3], Integer.parseInt(words[4]));
            if (lister == null) {
                Deserializer<byte[]> plain = (topic, bytes) -> bytes;
                lister = new KafkaConsumer<>(consumerSettings(new HashMap<>(common)), plain, plain);
            }
            Map<TopicPartition, Long> ends =
                    lister.endOffsets(List.of(partition), Duration.ofMillis(requestTimeoutMs));
            result("offset", words[1], ends.get(partition));
        }

        private Map<String, Object> consumerSettings(Map<String, Object> settings) {
            settings.put("default.api.timeout.ms", requestTimeoutMs);
            settings.put("enable.auto.commit", false);
            settings.put("auto.offset.reset", "none");
            settings.put("allow.auto.create.topics", false);
            settings.put("isolation.level", "read_uncommitted");
            settings.put("check.crcs", true);
            settings.put("max.poll.records", 10_000);
            // The other consumer fetches on a thread of its own, so it cannot be kept from fetching ahead.
            settings.put("group.protocol", "classic");
            return settings;
        }

        private static byte[] bytes(String field) {
            return field.equals("-") ? null : Base64.getDecoder().decode(field);
        }
    }

    /**
     * A consumer that reads one partition at a time from a given position, and returns only what it requested
     * after the call.
     *
     * <p>A consumer fetches ahead: before it returns records, it requests the next ones. It would return these
     * on the next call, however old they are by then. The first record that is decoded pauses the partition, so
     * that nothing is requested any more, and the next call begins with a new assignment, which drops what was
     * received and not returned, and the high watermark. A consumer that did not return records may have a
     * request in flight, so it is used once.
     */
    private static final class Reader {
        private static final Duration STEP = Duration.ofMillis(5);
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final Metric fetchResponses;
        private final String sizes;
        private boolean isNew = true;
        private boolean isPaused;

        Reader(Map<String, Object> settings, String sizes) {
            this.sizes = sizes;
            Deserializer<byte[]> pausing =
                    (topic, bytes) -> {
                        pause();
                        return bytes;
                    };
            consumer = new KafkaConsumer<>(settings, pausing, pausing);
            fetchResponses =
                    consumer.metrics().entrySet().stream()
                            .filter(one -> one.getKey().name().equals("fetch-total"))
                            .map(Map.Entry::getValue)
                            .findFirst()
                            .orElseThrow();
        }

        boolean canReadAgain(String wanted) {
            return (isNew || isPaused) && sizes.equals(wanted);
        }

        void close() {
            consumer.close(Duration.ZERO);
        }

        /** Reads once and reports the result; false if another consumer has to read instead. */
        boolean poll(String id, TopicPartition partition, long position, int epoch, long deadline) {
            isNew = false;
            isPaused = false;
            double before = responses();
            try {
                consumer.unsubscribe();
                consumer.assign(List.of(partition));
                Optional<Integer> lastEpoch = epoch < 0 ? Optional.empty() : Optional.of(epoch);
                consumer.seek(partition, new OffsetAndMetadata(position, lastEpoch, ""));
                while (System.nanoTime() < deadline) {
                    ConsumerRecords<byte[], byte[]> records = consumer.poll(STEP);
                    if (!records.isEmpty()) {
                        report(id, partition, records);
                        return true;
                    }
                    // Before a response the lag is unknown, and a request for it would send another request.
                    if (responses() > before) {
                        OptionalLong lag = consumer.currentLag(partition);
                        if (lag.isPresent() && lag.getAsLong() <= 0) {
                            result("records", id, position + lag.getAsLong());
                            return true;
                        }
                        if (lag.isEmpty()) {
                            // An error that the consumer handles by itself, or a response of a fetch session, in
                            // which a broker leaves out a partition without news.
                            return false;
                        }
                    }
                }
                throw new TimeoutException("no response to a fetch in time");
            } catch (RuntimeException error) {
                isPaused = false;
                throw error;
            }
        }

        private void report(String id, TopicPartition partition, ConsumerRecords<byte[], byte[]> records) {
            List<Object> fields = new ArrayList<>(List.of("records", id));
            OptionalLong lag = consumer.currentLag(partition);
            // A broker reads the high watermark before it reads the records, so records may lie beyond it. It is
            // then no log end that this poll could have observed together with them.
            boolean isEndKnown = lag.isPresent() && lag.getAsLong() >= 0;
            fields.add(isEndKnown ? consumer.position(partition) + lag.getAsLong() : -1);
            for (ConsumerRecord<byte[], byte[]> record : records.records(partition)) {
                fields.add(record.offset());
                fields.add(record.leaderEpoch().orElse(-1));
                fields.add(encoded(record.key()));
                fields.add(encoded(record.value()));
            }
            isPaused = isPaused && lag.isPresent();
            result(fields.toArray());
        }

        private double responses() {
            return ((Number) fetchResponses.metricValue()).doubleValue();
        }

        private void pause() {
            if (!isPaused) {
                consumer.pause(consumer.assignment());
                isPaused = true;
            }
        }
    }
}
