# Document 002: locks of runvoy's executions.
module "belay" {
  source     = "../.."
  table_name = "runvoy-locks"
  layout     = "runvoy"
}

output "store" {
  value = module.belay.store
}
