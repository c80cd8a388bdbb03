"""What a conversation answered: thinking tags, a strict reader, grades. Imports no module."""
