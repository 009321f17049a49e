module "alarms" {
  source        = "../../cloudwatch"
  alarm_actions = var.alarm_actions
}
