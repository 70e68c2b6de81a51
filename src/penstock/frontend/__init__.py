"""Streaming DataFrame -> JobGraph. Only this layer and ``spark`` touch the JVM."""
