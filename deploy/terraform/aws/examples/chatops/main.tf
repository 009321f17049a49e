# The table of the bot that builds and deploys from a chat.
module "belay" {
  source     = "../.."
  table_name = "chatops-locks"
  layout     = "chatops"
}

output "store" {
  value = module.belay.store
}
