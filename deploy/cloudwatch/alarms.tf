# Alarms on the metrics that `belay --metrics emf` writes. S4.11 defines the thresholds of the first two.
variable "alarm_actions" {
  description = "ARNs to notify, such as an SNS topic."
  type        = list(string)
  default     = []
}

resource "aws_cloudwatch_metric_alarm" "stale_locks" {
  alarm_name          = "deployer-stale-locks"
  alarm_description   = "A lock's holder has stopped sending heartbeats."
  namespace           = "Deployer"
  metric_name         = "deployer.lock.stale.detected"
  statistic           = "Sum"
  period              = 300
  evaluation_periods  = 1
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.alarm_actions
}

resource "aws_cloudwatch_metric_alarm" "lock_contention" {
  alarm_name          = "deployer-high-lock-contention"
  alarm_description   = "Locks are refused often."
  namespace           = "Deployer"
  metric_name         = "deployer.lock.acquisition.failure"
  statistic           = "Sum"
  period              = 300
  evaluation_periods  = 2
  comparison_operator = "GreaterThanThreshold"
  threshold           = 10
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.alarm_actions
}

# Each renewal writes this metric, so the alarm is raised while the lock is held. 'belay run' renews automatically.
resource "aws_cloudwatch_metric_alarm" "held_over_an_hour" {
  alarm_name          = "deployer-lock-held-over-an-hour"
  alarm_description   = "A lock has been held for more than an hour."
  namespace           = "Deployer"
  metric_name         = "deployer.lock.held.age"
  statistic           = "Maximum"
  period              = 300
  evaluation_periods  = 1
  comparison_operator = "GreaterThanThreshold"
  threshold           = 3600
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.alarm_actions
}
