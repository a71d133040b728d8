// A client of a Kafka cluster for the tests in ../../test_foreign_clients.py, on franz-go.
//
//	client admin BOOTSTRAP TOPIC             creates the topic, and creates and deletes another one
//	client produce BOOTSTRAP TOPIC COUNT     appends 0, 1, 2, ... and prints every acknowledged record
//	client consume BOOTSTRAP TOPIC GROUP COUNT    reads that many records with the group, and commits them
//
// Prints one JSON object per line.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	partitions = 3
	limit      = 3 * time.Minute
	pace       = time.Millisecond
	// The client stops sending while this many records are not acknowledged.
	inFlightMax = 100
)

// Row is one record, as the test compares it.
type Row struct {
	Partition int32 `json:"partition"`
	Offset    int64 `json:"offset"`
	Value     int   `json:"value"`
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func show(value any) {
	line, err := json.Marshal(value)
	check(err)
	_, err = os.Stdout.Write(append(line, '\n'))
	check(err)
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	check(err)
	return value
}

func connect(bootstrap string, options ...kgo.Opt) *kgo.Client {
	seeds := kgo.SeedBrokers(strings.Split(bootstrap, ",")...)
	client, err := kgo.NewClient(append(options, seeds)...)
	check(err)
	return client
}

func admin(ctx context.Context, bootstrap, topic string) {
	client := kadm.NewClient(connect(bootstrap))
	defer client.Close()
	least := "2"
	configs := map[string]*string{"min.insync.replicas": &least}
	for _, name := range []string{topic, topic + "-gone"} {
		made, err := client.CreateTopic(ctx, partitions, 3, configs, name)
		check(err)
		check(made.Err)
	}
	_, err := client.CreateTopic(ctx, partitions, 3, nil, topic)
	exists := err != nil && strings.Contains(err.Error(), "TOPIC_ALREADY_EXISTS")
	gone, err := client.DeleteTopic(ctx, topic+"-gone")
	check(err)
	check(gone.Err)
	described, err := client.DescribeTopicConfigs(ctx, topic)
	check(err)
	own := map[string]string{}
	for _, config := range described[0].Configs {
		if config.Key == "min.insync.replicas" {
			own[config.Key] = config.MaybeValue()
		}
	}
	topics, err := client.ListTopics(ctx)
	check(err)
	replicas := 0
	for _, partition := range topics[topic].Partitions {
		replicas += len(partition.Replicas)
	}
	names := topics.Names()
	show(map[string]any{
		"partitions": len(topics[topic].Partitions),
		"replicas":   replicas,
		"configs":    own,
		"exists":     exists,
		"listed":     slices.Contains(names, topic),
		"gone":       !slices.Contains(names, topic+"-gone"),
	})
}

func produce(ctx context.Context, bootstrap, topic string, count int) {
	client := connect(bootstrap,
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MaxBufferedRecords(inFlightMax),
		kgo.RecordDeliveryTimeout(limit),
	)
	defer client.Close()
	var output sync.Mutex
	for value := range count {
		record := &kgo.Record{
			Topic:     topic,
			Partition: int32(value % partitions),
			Value:     []byte(strconv.Itoa(value)),
		}
		// Waits while too many records are in flight.
		client.Produce(ctx, record, func(acknowledged *kgo.Record, err error) {
			check(err)
			output.Lock()
			defer output.Unlock()
			show(Row{acknowledged.Partition, acknowledged.Offset, value})
		})
		time.Sleep(pace)
	}
	check(client.Flush(ctx))
}

func consume(ctx context.Context, bootstrap, topic, group string, count int) {
	client := connect(bootstrap,
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
	)
	defer client.Close()
	for read := 0; read < count; {
		fetches := client.PollRecords(ctx, count-read)
		check(ctx.Err())
		records := fetches.Records()
		for _, record := range records {
			show(Row{record.Partition, record.Offset, number(string(record.Value))})
		}
		if len(records) > 0 {
			check(client.CommitRecords(ctx, records...))
		}
		read += len(records)
	}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	arguments := os.Args[1:]
	bootstrap, topic := arguments[1], arguments[2]
	switch arguments[0] {
	case "admin":
		admin(ctx, bootstrap, topic)
	case "produce":
		produce(ctx, bootstrap, topic, number(arguments[3]))
	case "consume":
		consume(ctx, bootstrap, topic, arguments[3], number(arguments[4]))
	default:
		log.Fatalf("unknown command %s", arguments[0])
	}
}
