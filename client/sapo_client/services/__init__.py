"""Running a node for months: units of service managers, containers, dashboards, alerts."""
