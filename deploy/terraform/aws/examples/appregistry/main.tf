# Document 003: the registry of applications and their shared databases.
module "belay" {
  source     = "../.."
  table_name = "app-registry"
  layout     = "appregistry"
}

output "store" {
  value = module.belay.store
}
