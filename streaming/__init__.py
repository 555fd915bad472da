"""The shell around the planner: Spark, Kafka and the command line."""
