"""Pure functions over Arrow tables; they never import Spark."""
